// The GGUF parser. One cursor walks the header; every read says how many bytes it wants and fails
// when fewer are left, so that no pointer is ever formed past the end.
#include "engine/model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

namespace baton::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr std::uint64_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1U << 20U;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMaxNameBytes = 1024;
// Least bytes a value or a tensor entry takes: bounds the counts in the header.
constexpr std::uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

std::optional<std::size_t> scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::UInt8:
    case GgufType::Int8:
    case GgufType::Bool:
      return 1;
    case GgufType::UInt16:
    case GgufType::Int16:
      return 2;
    case GgufType::UInt32:
    case GgufType::Int32:
    case GgufType::Float32:
      return 4;
    case GgufType::UInt64:
    case GgufType::Int64:
    case GgufType::Float64:
      return 8;
    case GgufType::String:
    case GgufType::Array:
      break;
  }
  return std::nullopt;
}

// The numbers of the GGML tensor type table that Baton computes with.
std::optional<kernels::DType> dtype_of(std::uint32_t number) {
  using kernels::DType;
  switch (number) {
    case 0:
      return DType::F32;
    case 1:
      return DType::F16;
    case 2:
      return DType::Q4_0;
    case 3:
      return DType::Q4_1;
    case 6:
      return DType::Q5_0;
    case 7:
      return DType::Q5_1;
    case 8:
      return DType::Q8_0;
    case 12:
      return DType::Q4_K;
    case 13:
      return DType::Q5_K;
    case 14:
      return DType::Q6_K;
    case 30:
      return DType::BF16;
    default:
      return std::nullopt;
  }
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Where a tensor's data lies, relative to the data section, for the overlap check.
struct Extent {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::string_view name;
};

struct TensorEntry {
  std::string_view name;
  std::uint64_t entry_at;  // byte offset of the entry in the file
  kernels::DType dtype;
  std::uint64_t rows;
  std::uint64_t cols;
  std::uint64_t bytes;
  std::uint64_t offset;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), file_(name) {}

  Result<GgufFile> parse() {
    place_ = "header";
    BATON_ASSIGN(const auto magic, number<std::uint32_t>());
    if (magic != kMagic) {
      return bad("this is not a GGUF file (its first four bytes are not \"GGUF\")");
    }
    BATON_ASSIGN(const auto version, number<std::uint32_t>());
    if (version != 2 && version != 3) {
      return bad(fmt::format("GGUF version {} is not supported, only 2 and 3", version));
    }
    BATON_ASSIGN(const auto tensor_count, number<std::uint64_t>());
    BATON_ASSIGN(const auto value_count, number<std::uint64_t>());
    if (tensor_count > left() / kMinTensorBytes) {
      return bad(fmt::format("{} tensors cannot fit into the file", tensor_count));
    }
    if (value_count > left() / kMinValueBytes) {
      return bad(fmt::format("{} metadata values cannot fit into the file", value_count));
    }
    for (std::uint64_t i = 0; i < value_count; ++i) {
      BATON_TRY(value_entry(i));
    }
    std::vector<TensorEntry> entries;
    entries.reserve(tensor_count);  // bounded by the file's size above
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      BATON_ASSIGN(auto entry, tensor_entry(i));
      entries.push_back(entry);
    }
    BATON_TRY(place_tensors(entries));
    return std::move(out_);
  }

 private:
  std::uint64_t left() const { return bytes_.size() - at_; }

  std::unexpected<Error> bad(const std::string& why) const { return bad_at(at_, place_, why); }
  std::unexpected<Error> bad_at(std::uint64_t at,
                                std::string_view place,
                                const std::string& why) const {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: {}, byte offset {}: {}", file_, place, at, why));
  }

  Result<const std::byte*> take(std::uint64_t count) {
    if (count > left()) {
      return bad(fmt::format("the file ends here: {} more bytes wanted, {} left", count, left()));
    }
    const std::byte* start = bytes_.data() + at_;
    at_ += count;
    return start;
  }

  template <class T>
  Result<T> number() {
    BATON_ASSIGN(const std::byte* from, take(sizeof(T)));
    return load<T>(from);
  }

  Result<std::string_view> text() {
    BATON_ASSIGN(const auto length, number<std::uint64_t>());
    BATON_ASSIGN(const std::byte* from, take(length));
    return std::string_view(reinterpret_cast<const char*>(from), length);
  }

  Result<std::string_view> name() {
    BATON_ASSIGN(const auto result, text());
    if (result.empty() || result.size() > kMaxNameBytes) {
      return bad(
          fmt::format("a name of {} bytes; 1 to {} are allowed", result.size(), kMaxNameBytes));
    }
    return result;
  }

  Status value_entry(std::uint64_t index) {
    place_ = fmt::format("metadata value {}", index);
    BATON_ASSIGN(const auto key, name());
    place_ = fmt::format("key {}", quoted(key));
    BATON_ASSIGN(const auto type, number<std::uint32_t>());
    BATON_ASSIGN(auto value, value_of(type));
    if (!out_.values.emplace(std::string(key), value).second) {
      return bad("the key occurs twice");
    }
    return {};
  }

  Result<GgufValue> value_of(std::uint32_t type) {
    switch (static_cast<GgufType>(type)) {
      case GgufType::UInt8:
        return widened<std::uint8_t, std::uint64_t>();
      case GgufType::Int8:
        return widened<std::int8_t, std::int64_t>();
      case GgufType::UInt16:
        return widened<std::uint16_t, std::uint64_t>();
      case GgufType::Int16:
        return widened<std::int16_t, std::int64_t>();
      case GgufType::UInt32:
        return widened<std::uint32_t, std::uint64_t>();
      case GgufType::Int32:
        return widened<std::int32_t, std::int64_t>();
      case GgufType::UInt64:
        return widened<std::uint64_t, std::uint64_t>();
      case GgufType::Int64:
        return widened<std::int64_t, std::int64_t>();
      case GgufType::Float32:
        return widened<float, double>();
      case GgufType::Float64:
        return widened<double, double>();
      case GgufType::Bool: {
        BATON_ASSIGN(const auto value, number<std::uint8_t>());
        return GgufValue(value != 0);
      }
      case GgufType::String: {
        BATON_ASSIGN(const auto value, text());
        return GgufValue(value);
      }
      case GgufType::Array:
        return array();
    }
    return bad(fmt::format("unknown value type {}", type));
  }

  template <class From, class To>
  Result<GgufValue> widened() {
    BATON_ASSIGN(const auto value, number<From>());
    return GgufValue(static_cast<To>(value));
  }

  Result<GgufValue> array() {
    BATON_ASSIGN(const auto number_of_type, number<std::uint32_t>());
    const auto element = static_cast<GgufType>(number_of_type);
    BATON_ASSIGN(const auto count, number<std::uint64_t>());
    const std::uint64_t start = at_;
    if (element == GgufType::String) {
      if (count > left() / 8) {
        return bad(fmt::format("an array of {} strings cannot fit into the file", count));
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        BATON_TRY(text());
      }
    } else if (const auto size = scalar_bytes(element)) {
      if (count > left() / *size) {
        return bad(fmt::format("an array of {} elements cannot fit into the file", count));
      }
      BATON_TRY(take(count * *size));
    } else {
      return bad(fmt::format("arrays of type {} are not supported", number_of_type));
    }
    return GgufValue(GgufArray{element, count, bytes_.subspan(start, at_ - start)});
  }

  Result<TensorEntry> tensor_entry(std::uint64_t index) {
    TensorEntry entry{};
    entry.entry_at = at_;
    place_ = fmt::format("tensor {}", index);
    BATON_ASSIGN(entry.name, name());
    place_ = fmt::format("tensor {}", quoted(entry.name));
    BATON_ASSIGN(const auto dims, number<std::uint32_t>());
    if (dims < 1 || dims > kMaxDims) {
      return bad(fmt::format("{} dimensions; 1 to {} are allowed", dims, kMaxDims));
    }
    entry.cols = 1;
    entry.rows = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      BATON_ASSIGN(const auto size, number<std::uint64_t>());
      if (size == 0) {
        return bad("a dimension is 0");
      }
      std::uint64_t& product = d == 0 ? entry.cols : entry.rows;
      if (__builtin_mul_overflow(product, size, &product)) {
        return bad("the product of the dimensions overflows");
      }
    }
    BATON_ASSIGN(const auto type, number<std::uint32_t>());
    const auto dtype = dtype_of(type);
    if (!dtype) {
      return bad(
          fmt::format("tensor type {} is not supported; known are F32, F16, BF16, Q4_0, Q4_1, "
                      "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K",
                      type));
    }
    entry.dtype = *dtype;
    const auto& block = kernels::info(*dtype);
    if (entry.cols % block.block_elements != 0) {
      return bad(fmt::format("a row of {} elements is not a multiple of the {} of a {} block",
                             entry.cols,
                             block.block_elements,
                             block.name));
    }
    if (__builtin_mul_overflow(
            entry.cols / block.block_elements, std::uint64_t{block.block_bytes}, &entry.bytes) ||
        __builtin_mul_overflow(entry.bytes, entry.rows, &entry.bytes)) {
      return bad("the tensor's size overflows");
    }
    BATON_ASSIGN(entry.offset, number<std::uint64_t>());
    return entry;
  }

  // Checks every tensor's place in the data section and that no two share bytes.
  Status place_tensors(const std::vector<TensorEntry>& entries) {
    place_ = "general.alignment";
    std::uint64_t alignment = kDefaultAlignment;
    if (const auto it = out_.values.find("general.alignment"); it != out_.values.end()) {
      const auto* value = std::get_if<std::uint64_t>(&it->second);
      if (value == nullptr || !std::has_single_bit(*value) || *value < 8 ||
          *value > kMaxAlignment) {
        return bad(fmt::format("must be a power of two from 8 to {}", kMaxAlignment));
      }
      alignment = *value;
    }
    const std::uint64_t padding = (alignment - at_ % alignment) % alignment;
    if (!entries.empty() && padding > left()) {
      place_ = "tensor data";
      return bad("the file ends before the tensor data");
    }
    const std::uint64_t start = std::min<std::uint64_t>(at_ + padding, bytes_.size());
    const std::uint64_t data_bytes = bytes_.size() - start;
    out_.data_offset = start;
    std::vector<Extent> extents;
    extents.reserve(entries.size());
    for (const TensorEntry& entry : entries) {
      const std::string place = fmt::format("tensor {}", quoted(entry.name));
      if (entry.offset % alignment != 0) {
        return bad_at(
            entry.entry_at,
            place,
            fmt::format("data offset {} is not a multiple of {}", entry.offset, alignment));
      }
      if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset) {
        return bad_at(
            entry.entry_at,
            place,
            fmt::format("its {} bytes at data offset {} reach past the end of the file ({} "
                        "bytes of data); the file may be truncated",
                        entry.bytes,
                        entry.offset,
                        data_bytes));
      }
      const kernels::WeightView view{
          entry.dtype, entry.rows, entry.cols, bytes_.subspan(start + entry.offset, entry.bytes)};
      if (!out_.tensors.emplace(std::string(entry.name), view).second) {
        return bad_at(entry.entry_at, place, "the tensor occurs twice");
      }
      extents.push_back({entry.offset, entry.bytes, entry.name});
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
      return a.offset < b.offset;
    });
    for (std::size_t i = 1; i < extents.size(); ++i) {
      if (extents[i - 1].offset + extents[i - 1].bytes > extents[i].offset) {
        return bad_at(start + extents[i].offset,
                      fmt::format("tensor {}", quoted(extents[i].name)),
                      fmt::format("its data overlaps that of {}", quoted(extents[i - 1].name)));
      }
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::uint64_t at_ = 0;  // <= bytes_.size()
  std::string place_;     // what is being read, for messages
  GgufFile out_;
};

template <class From, class To>
void convert(const GgufArray& array, std::vector<To>& out) {
  out.resize(array.count);
  for (std::uint64_t i = 0; i < array.count; ++i) {
    out[i] = static_cast<To>(load<From>(array.bytes.data() + i * sizeof(From)));
  }
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, std::string_view name) {
  return Parser(bytes, name).parse();
}

bool read_strings(const GgufArray& array, std::vector<std::string>& out) {
  if (array.element != GgufType::String) {
    return false;
  }
  out.clear();
  out.reserve(array.count);
  const std::byte* at = array.bytes.data();
  for (std::uint64_t i = 0; i < array.count; ++i) {
    const auto length = load<std::uint64_t>(at);  // walked by the parser: in bounds
    out.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return true;
}

bool read_floats(const GgufArray& array, std::vector<float>& out) {
  if (array.element != GgufType::Float32) {
    return false;
  }
  convert<float>(array, out);
  return true;
}

bool read_ints(const GgufArray& array, std::vector<std::int64_t>& out) {
  switch (array.element) {
    case GgufType::UInt8:
      convert<std::uint8_t>(array, out);
      return true;
    case GgufType::Int8:
      convert<std::int8_t>(array, out);
      return true;
    case GgufType::UInt16:
      convert<std::uint16_t>(array, out);
      return true;
    case GgufType::Int16:
      convert<std::int16_t>(array, out);
      return true;
    case GgufType::UInt32:
      convert<std::uint32_t>(array, out);
      return true;
    case GgufType::Int32:
      convert<std::int32_t>(array, out);
      return true;
    case GgufType::Int64:
      convert<std::int64_t>(array, out);
      return true;
    default:
      return false;
  }
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

}  // namespace baton::engine
