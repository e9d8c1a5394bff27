#include "engine/model/int4.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "kernels/half.h"

namespace baton::engine {
namespace {

using kernels::DType;

constexpr std::uint64_t kBlock = 32;  // inputs of a file block
constexpr std::uint64_t kPacked = 8;  // codes in a word
constexpr unsigned kSymmetricZero = 8;
// AWQ deals the outputs of a word out to its nibbles in this order: output i lies in nibble …
constexpr std::array<unsigned, kPacked> kAwqNibble{0, 4, 1, 5, 2, 6, 3, 7};

std::uint32_t word_at(const SafeTensor& tensor, std::uint64_t index) {
  std::uint32_t word;
  std::memcpy(&word, tensor.data.data() + index * sizeof(word), sizeof(word));
  return word;
}

std::unexpected<Error> bad(const Int4Parts& parts, std::string_view part, std::string_view why) {
  return fail(ErrorCode::InvalidModel, fmt::format("{}.{}: {}", parts.place, part, why));
}

Status check_words(const Int4Parts& parts, const SafeTensor& tensor, std::string_view part) {
  if (tensor.type != SafeType::I32 && tensor.type != SafeType::U32) {
    return bad(parts, part, fmt::format("must be I32, is {}", to_string(tensor.type)));
  }
  return {};
}

Status check_shape(const Int4Parts& parts,
                   const SafeTensor& tensor,
                   std::string_view part,
                   std::uint64_t rows,
                   std::uint64_t cols) {
  if (tensor.shape.size() != 2 || tensor.shape[0] != rows || tensor.shape[1] != cols) {
    return bad(
        parts,
        part,
        fmt::format("shape [{}], expected [{}, {}]", fmt::join(tensor.shape, ", "), rows, cols));
  }
  return {};
}

// Reads codes, zeros, scales and groups wherever they lie.
class Source {
 public:
  Source(const Int4Scheme& scheme, const Int4Parts& parts, const Int4Plan& plan)
      : scheme_(scheme), parts_(parts), plan_(plan) {}

  std::uint64_t group_of(std::uint64_t input) const {
    if (parts_.g_idx != nullptr) {
      return word_at(*parts_.g_idx, input);
    }
    return scheme_.group_size == 0 ? 0 : input / scheme_.group_size;
  }

  // 0 to 15.
  unsigned zero(std::uint64_t group, std::uint64_t output) const {
    if (parts_.qzeros == nullptr) {
      return kSymmetricZero;
    }
    const std::uint32_t word =
        word_at(*parts_.qzeros, group * (plan_.rows / kPacked) + output / kPacked);
    const unsigned stored = (word >> (4 * nibble(output))) & 0xFU;
    return (stored + (scheme_.zeros_less_one ? 1U : 0U)) & 0xFU;
  }

  float scale(std::uint64_t group, std::uint64_t output) const {
    const SafeTensor& scales = *parts_.scales;
    const std::uint64_t index = group * plan_.rows + output;
    if (scales.type == SafeType::F32) {
      float value;
      std::memcpy(&value, scales.data.data() + index * sizeof(value), sizeof(value));
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, scales.data.data() + index * sizeof(bits), sizeof(bits));
    return scales.type == SafeType::F16 ? kernels::half_to_float(bits)
                                        : kernels::bfloat_to_float(bits);
  }

  // The 32 codes of one output from `input` on.
  void codes(std::uint64_t output, std::uint64_t input, std::uint8_t* out) const {
    if (scheme_.method == Int4Scheme::Method::Gptq) {
      for (std::uint64_t w = 0; w < kBlock / kPacked; ++w) {
        const std::uint32_t word =
            word_at(*parts_.qweight, (input / kPacked + w) * plan_.rows + output);
        for (unsigned i = 0; i < kPacked; ++i) {
          out[w * kPacked + i] = static_cast<std::uint8_t>((word >> (4 * i)) & 0xFU);
        }
      }
      return;
    }
    const unsigned shift = 4 * nibble(output);
    for (std::uint64_t k = 0; k < kBlock; ++k) {
      const std::uint32_t word =
          word_at(*parts_.qweight, (input + k) * (plan_.rows / kPacked) + output / kPacked);
      out[k] = static_cast<std::uint8_t>((word >> shift) & 0xFU);
    }
  }

 private:
  unsigned nibble(std::uint64_t output) const {
    const auto place = static_cast<unsigned>(output % kPacked);
    return scheme_.method == Int4Scheme::Method::Awq ? kAwqNibble[place] : place;
  }

  const Int4Scheme& scheme_;
  const Int4Parts& parts_;
  const Int4Plan& plan_;
};

void put_scale(float scale, std::byte* block) {
  const std::uint16_t bits = kernels::float_to_half(scale);
  std::memcpy(block, &bits, sizeof(bits));
}

// Low nibbles are the first 16 elements, high ones the last.
void put_nibbles(const std::uint8_t* codes, std::byte* out) {
  for (std::size_t j = 0; j < kBlock / 2; ++j) {
    out[j] = static_cast<std::byte>((codes[j] & 0xFU) | ((codes[j + kBlock / 2] & 0xFU) << 4U));
  }
}

void write_q5_0(const std::uint8_t* codes, unsigned zero, std::byte* block) {
  std::array<std::uint8_t, kBlock> five;
  std::uint32_t top = 0;
  for (std::size_t j = 0; j < kBlock; ++j) {
    five[j] = static_cast<std::uint8_t>(codes[j] + 16U - zero);
    top |= static_cast<std::uint32_t>(five[j] >> 4U) << j;
  }
  std::memcpy(block + 2, &top, sizeof(top));
  put_nibbles(five.data(), block + 6);
}

bool one_group_a_block(const Source& source, std::uint64_t cols) {
  for (std::uint64_t k = 0; k < cols; ++k) {
    if (source.group_of(k) != source.group_of(k / kBlock * kBlock)) {
      return false;
    }
  }
  return true;
}

bool is_symmetric(const Int4Scheme& scheme, const Int4Parts& parts) {
  if (parts.qzeros == nullptr) {
    return true;
  }
  const std::uint32_t word = scheme.zeros_less_one ? 0x77777777U : 0x88888888U;
  for (std::uint64_t i = 0; i < parts.qzeros->elements(); ++i) {
    if (word_at(*parts.qzeros, i) != word) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<Int4Plan> plan_int4(const Int4Scheme& scheme, const Int4Parts& parts) {
  const bool gptq = scheme.method == Int4Scheme::Method::Gptq;
  if (parts.qweight == nullptr || parts.scales == nullptr) {
    return bad(parts, parts.qweight == nullptr ? "qweight" : "scales", "the tensor is missing");
  }
  const SafeTensor& weight = *parts.qweight;
  BATON_TRY(check_words(parts, weight, "qweight"));
  if (weight.shape.size() != 2) {
    return bad(parts, "qweight", "must have two dimensions");
  }
  Int4Plan plan;
  if (__builtin_mul_overflow(weight.shape[0], gptq ? kPacked : 1, &plan.cols) ||
      __builtin_mul_overflow(weight.shape[1], gptq ? 1 : kPacked, &plan.rows)) {
    return bad(parts, "qweight", "its size overflows");
  }
  if (plan.rows == 0 || plan.rows % kPacked != 0 || plan.cols == 0 || plan.cols % kBlock != 0) {
    return bad(parts,
               "qweight",
               fmt::format("{} outputs of {} inputs: they must be multiples of {} and {}",
                           plan.rows,
                           plan.cols,
                           kPacked,
                           kBlock));
  }
  if (scheme.group_size != 0 && plan.cols % scheme.group_size != 0) {
    return bad(
        parts,
        "qweight",
        fmt::format(
            "{} inputs are not a multiple of the group size {}", plan.cols, scheme.group_size));
  }
  plan.groups = scheme.group_size == 0 ? 1 : plan.cols / scheme.group_size;
  const SafeTensor& scales = *parts.scales;
  if (scales.type != SafeType::F16 && scales.type != SafeType::BF16 &&
      scales.type != SafeType::F32) {
    return bad(parts, "scales", fmt::format("must be F16, is {}", to_string(scales.type)));
  }
  BATON_TRY(check_shape(parts, scales, "scales", plan.groups, plan.rows));
  if (parts.qzeros != nullptr) {
    BATON_TRY(check_words(parts, *parts.qzeros, "qzeros"));
    BATON_TRY(check_shape(parts, *parts.qzeros, "qzeros", plan.groups, plan.rows / kPacked));
  }
  if (parts.g_idx != nullptr) {
    BATON_TRY(check_words(parts, *parts.g_idx, "g_idx"));
    if (parts.g_idx->elements() != plan.cols) {
      return bad(parts, "g_idx", fmt::format("must have one number for each of {}", plan.cols));
    }
    for (std::uint64_t k = 0; k < plan.cols; ++k) {
      if (word_at(*parts.g_idx, k) >= plan.groups) {
        return bad(
            parts,
            "g_idx",
            fmt::format("input {} is in group {} of {}", k, word_at(*parts.g_idx, k), plan.groups));
      }
    }
  }
  if (!one_group_a_block(Source(scheme, parts, plan), plan.cols)) {
    plan.dtype = DType::F16;
  } else {
    plan.dtype = is_symmetric(scheme, parts) ? DType::Q4_0 : DType::Q5_0;
  }
  return plan;
}

Result<std::shared_ptr<std::byte[]>> convert_int4(const Int4Scheme& scheme,
                                                  const Int4Parts& parts,
                                                  const Int4Plan& plan,
                                                  std::span<const std::uint32_t> row_from) {
  const Source source(scheme, parts, plan);
  const std::uint64_t row_size = kernels::row_bytes(plan.dtype, plan.cols);
  const std::uint64_t block_size = kernels::row_bytes(plan.dtype, kBlock);
  std::shared_ptr<std::byte[]> out(new (std::nothrow) std::byte[plan.rows * row_size]);
  if (out == nullptr) {
    return fail(ErrorCode::OutOfMemory, fmt::format("{}: no memory to unpack it", parts.place));
  }
  for (std::uint64_t group = 0; group < plan.groups; ++group) {
    for (std::uint64_t row = 0; row < plan.rows; ++row) {
      const float scale = source.scale(group, row);
      // A block holds its scale as F16.
      if (!std::isfinite(scale) || kernels::half_to_float(kernels::float_to_half(scale)) != scale) {
        return bad(parts,
                   "scales",
                   fmt::format("output {} of group {}: {} is no F16 number", row, group, scale));
      }
    }
  }
  // Eight outputs at a time: they share their words.
  std::array<std::uint8_t, kBlock> codes;
  for (std::uint64_t first = 0; first < plan.rows; first += kPacked) {
    for (std::uint64_t k = 0; k < plan.cols; k += kBlock) {
      const std::uint64_t group = source.group_of(k);
      for (std::uint64_t row = first; row < first + kPacked; ++row) {
        const std::uint64_t from = row_from.empty() ? row : row_from[row];
        std::byte* block = out.get() + row * row_size + k / kBlock * block_size;
        source.codes(from, k, codes.data());
        if (plan.dtype == DType::F16) {
          for (std::uint64_t j = 0; j < kBlock; ++j) {
            const std::uint64_t own = source.group_of(k + j);
            const int code = static_cast<int>(codes[j]) - static_cast<int>(source.zero(own, from));
            put_scale(source.scale(own, from) * static_cast<float>(code), block + 2 * j);
          }
          continue;
        }
        put_scale(source.scale(group, from), block);
        if (plan.dtype == DType::Q4_0) {
          put_nibbles(codes.data(), block + 2);
        } else {
          write_q5_0(codes.data(), source.zero(group, from), block);
        }
      }
    }
  }
  return out;
}

}  // namespace baton::engine
