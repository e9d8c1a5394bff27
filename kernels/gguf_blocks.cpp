#include "kernels/gguf_blocks.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "common/base/check.h"
#include "kernels/half.h"

namespace baton::kernels {
namespace {

std::uint8_t byte_at(const std::byte* bytes, std::size_t i) {
  return std::to_integer<std::uint8_t>(bytes[i]);
}

std::uint16_t u16_at(const std::byte* bytes) {
  std::uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float half_at(const std::byte* bytes) {
  return half_to_float(u16_at(bytes));
}

// Elements j and j + 16 share a byte: low and high nibble.
void nibbles_of_32(const std::byte* packed, std::uint8_t* codes) {
  for (std::size_t j = 0; j < 16; ++j) {
    codes[j] = byte_at(packed, j) & 0xF;
    codes[j + 16] = byte_at(packed, j) >> 4;
  }
}

// The fifth bit of element j is bit j of a 32-bit word.
void fifth_bits_of_32(const std::byte* packed, std::uint8_t* codes) {
  std::uint32_t bits;
  std::memcpy(&bits, packed, sizeof(bits));
  for (std::size_t j = 0; j < 32; ++j) {
    codes[j] = static_cast<std::uint8_t>(codes[j] | (((bits >> j) & 1U) << 4));
  }
}

// Eight 6-bit scales and eight 6-bit mins in 12 bytes, as Q4_K and Q5_K hold them.
struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};
ScaleMin packed_scale_min(const std::byte* packed, std::size_t group) {
  if (group < 4) {
    return {static_cast<std::uint8_t>(byte_at(packed, group) & 63),
            static_cast<std::uint8_t>(byte_at(packed, group + 4) & 63)};
  }
  const std::uint8_t low = byte_at(packed, group + 4);
  return {static_cast<std::uint8_t>((low & 0xF) | ((byte_at(packed, group - 4) >> 6) << 4)),
          static_cast<std::uint8_t>((low >> 4) | ((byte_at(packed, group) >> 6) << 4))};
}

void decode_k_scales(const std::byte* block, float* scales, float* mins) {
  const float scale = half_at(block);
  const float min = half_at(block + 2);
  for (std::size_t g = 0; g < 8; ++g) {
    const ScaleMin packed = packed_scale_min(block + 4, g);
    scales[g] = scale * static_cast<float>(packed.scale);
    mins[g] = -(min * static_cast<float>(packed.min));
  }
}

// 64 elements share 32 bytes: the first 32 are low nibbles, the others high ones.
void nibbles_of_256(const std::byte* packed, std::uint8_t* codes) {
  for (std::size_t part = 0; part < 4; ++part) {
    for (std::size_t j = 0; j < 32; ++j) {
      const std::uint8_t pair = byte_at(packed, part * 32 + j);
      codes[part * 64 + j] = pair & 0xF;
      codes[part * 64 + 32 + j] = pair >> 4;
    }
  }
}

void decode_q6_k(const std::byte* block, std::uint8_t* codes, float* scales) {
  const std::byte* low = block;
  const std::byte* high = block + 128;
  const std::byte* group_scales = block + 192;
  const float scale = half_at(block + 208);
  for (std::size_t half = 0; half < 2; ++half) {
    for (std::size_t j = 0; j < 32; ++j) {
      const std::uint8_t low_0 = byte_at(low, half * 64 + j);
      const std::uint8_t low_1 = byte_at(low, half * 64 + 32 + j);
      const std::uint8_t top = byte_at(high, half * 32 + j);
      std::uint8_t* out = codes + half * 128 + j;
      out[0] = static_cast<std::uint8_t>((low_0 & 0xF) | ((top & 3) << 4));
      out[32] = static_cast<std::uint8_t>((low_1 & 0xF) | (((top >> 2) & 3) << 4));
      out[64] = static_cast<std::uint8_t>((low_0 >> 4) | (((top >> 4) & 3) << 4));
      out[96] = static_cast<std::uint8_t>((low_1 >> 4) | (((top >> 6) & 3) << 4));
    }
  }
  for (std::size_t g = 0; g < 16; ++g) {
    scales[g] = scale * static_cast<float>(static_cast<std::int8_t>(byte_at(group_scales, g)));
  }
}

}  // namespace

void decode_block(
    DType type, const std::byte* block, std::uint8_t* codes, float* scales, float* mins) {
  const QuantShape shape = quant_shape(type);
  const std::size_t groups = info(type).block_elements / shape.group;
  for (std::size_t g = 0; g < groups; ++g) {
    mins[g] = 0.0F;
  }
  switch (type) {
    case DType::Q4_0:
      scales[0] = half_at(block);
      nibbles_of_32(block + 2, codes);
      return;
    case DType::Q4_1:
      scales[0] = half_at(block);
      mins[0] = half_at(block + 2);
      nibbles_of_32(block + 4, codes);
      return;
    case DType::Q5_0:
      scales[0] = half_at(block);
      nibbles_of_32(block + 6, codes);
      fifth_bits_of_32(block + 2, codes);
      return;
    case DType::Q5_1:
      scales[0] = half_at(block);
      mins[0] = half_at(block + 2);
      nibbles_of_32(block + 8, codes);
      fifth_bits_of_32(block + 4, codes);
      return;
    case DType::Q8_0:
      scales[0] = half_at(block);
      for (std::size_t j = 0; j < 32; ++j) {
        codes[j] = byte_at(block, 2 + j) ^ 0x80;  // two's complement plus 128
      }
      return;
    case DType::Q4_K:
      decode_k_scales(block, scales, mins);
      nibbles_of_256(block + 16, codes);
      return;
    case DType::Q5_K:
      decode_k_scales(block, scales, mins);
      nibbles_of_256(block + 48, codes);
      for (std::size_t i = 0; i < 256; ++i) {
        const std::uint8_t bit = (byte_at(block, 16 + i % 32) >> (i / 32)) & 1;
        codes[i] = static_cast<std::uint8_t>(codes[i] | (bit << 4));
      }
      return;
    case DType::Q6_K:
      decode_q6_k(block, codes, scales);
      return;
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  BATON_CHECK(false, "decode_block takes a quantised type");
}

RawKScales raw_k_scales(DType type, const std::byte* block) {
  RawKScales raw;
  if (type == DType::Q6_K) {
    raw.d = u16_at(block + 208);
    std::memcpy(raw.scales, block + 192, sizeof(raw.scales));
    return raw;
  }
  raw.d = u16_at(block);
  raw.dmin = u16_at(block + 2);
  for (std::size_t g = 0; g < 8; ++g) {
    const ScaleMin packed = packed_scale_min(block + 4, g);
    raw.scales[g] = packed.scale;
    raw.mins[g] = packed.min;
  }
  return raw;
}

void dequantise_row(DType type, const std::byte* row, std::size_t cols, float* out) {
  switch (type) {
    case DType::F32:
      std::memcpy(out, row, cols * sizeof(float));
      return;
    case DType::F16:
      for (std::size_t i = 0; i < cols; ++i) {
        out[i] = half_at(row + 2 * i);
      }
      return;
    case DType::BF16:
      for (std::size_t i = 0; i < cols; ++i) {
        out[i] = bfloat_to_float(u16_at(row + 2 * i));
      }
      return;
    default:
      break;
  }
  const DTypeInfo layout = info(type);
  const QuantShape shape = quant_shape(type);
  std::array<std::uint8_t, 256> codes;
  std::array<float, 16> scales;
  std::array<float, 16> mins;
  for (std::size_t first = 0; first < cols; first += layout.block_elements) {
    decode_block(type, row, codes.data(), scales.data(), mins.data());
    row += layout.block_bytes;
    for (std::size_t i = 0; i < layout.block_elements; ++i) {
      const auto code = static_cast<float>(static_cast<std::int32_t>(codes[i]) - shape.offset);
      out[first + i] = scales[i / shape.group] * code + mins[i / shape.group];
    }
  }
}

Status check_weight(const WeightView& weight) {
  const DTypeInfo layout = info(weight.dtype);
  if (weight.rows == 0 || weight.cols == 0 || weight.cols % layout.block_elements != 0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("a {} weight of {} x {}: columns must be a multiple of {}",
                            layout.name,
                            weight.rows,
                            weight.cols,
                            layout.block_elements));
  }
  const std::size_t bytes = row_bytes(weight.dtype, weight.cols);
  if (weight.data.size() / bytes != weight.rows || weight.data.size() % bytes != 0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("a {} weight of {} x {} has {} bytes, not {}",
                            layout.name,
                            weight.rows,
                            weight.cols,
                            weight.data.size(),
                            weight.rows * bytes));
  }
  return {};
}

}  // namespace baton::kernels
