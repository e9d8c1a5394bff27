#include "engine/model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "common/json/json_doc.h"
#include "engine/model/gguf.h"

namespace baton::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxTensorNameBytes = 1024;
constexpr std::size_t kMaxTensorDims = 8;

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
};
// In the order of SafeType.
constexpr std::array<TypeRow, 15> kTypes{{{"BOOL", 1},
                                          {"U8", 1},
                                          {"I8", 1},
                                          {"F8_E5M2", 1},
                                          {"F8_E4M3", 1},
                                          {"I16", 2},
                                          {"U16", 2},
                                          {"F16", 2},
                                          {"BF16", 2},
                                          {"I32", 4},
                                          {"U32", 4},
                                          {"F32", 4},
                                          {"F64", 8},
                                          {"I64", 8},
                                          {"U64", 8}}};

std::optional<SafeType> type_named(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) {
      return static_cast<SafeType>(i);
    }
  }
  return std::nullopt;
}

Result<SafeTensor> read_entry(const JsonValue& entry, std::span<const std::byte> data) {
  SafeTensor out;
  BATON_ASSIGN(const auto type, entry.at("dtype"));
  BATON_ASSIGN(const auto type_name, type.to_string());
  const auto known = type_named(type_name);
  if (!known) {
    return entry.bad(fmt::format("unknown element type {}", engine::quoted(type_name)));
  }
  out.type = *known;
  BATON_ASSIGN(const auto shape, entry.at("shape"));
  BATON_ASSIGN(const auto dims, shape.to_array());
  std::uint64_t bytes = bytes_of(out.type);
  for (const auto dim : dims) {
    std::uint64_t size = 0;
    if (dim.get(size) != simdjson::SUCCESS) {
      return shape.bad("must be whole numbers");
    }
    if (out.shape.size() == kMaxTensorDims) {
      return shape.bad(fmt::format("more than {} dimensions", kMaxTensorDims));
    }
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return shape.bad("the product of the dimensions overflows");
    }
    out.shape.push_back(size);
  }
  BATON_ASSIGN(const auto offsets, entry.at("data_offsets"));
  BATON_ASSIGN(const auto ends, offsets.to_array());
  std::vector<std::uint64_t> numbers;
  for (const auto end : ends) {
    std::uint64_t number = 0;
    if (end.get(number) != simdjson::SUCCESS || numbers.size() == 2) {
      return offsets.bad("must be two whole numbers");
    }
    numbers.push_back(number);
  }
  if (numbers.size() != 2) {
    return offsets.bad("must be two whole numbers");
  }
  if (numbers[0] > numbers[1] || numbers[1] > data.size()) {
    return offsets.bad(
        fmt::format("{} to {} lies outside of the {} bytes of data; the file may be truncated",
                    numbers[0],
                    numbers[1],
                    data.size()));
  }
  if (numbers[1] - numbers[0] != bytes) {
    return offsets.bad(
        fmt::format("{} bytes, but its type and shape make {}", numbers[1] - numbers[0], bytes));
  }
  out.data = data.subspan(numbers[0], bytes);
  return out;
}

Status check_overlap(const SafeTensors& tensors, const std::string& name) {
  std::vector<const SafeTensors::value_type*> order;
  for (const auto& entry : tensors) {
    if (!entry.second.data.empty()) {
      order.push_back(&entry);
    }
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->second.data.data() < b->second.data.data();
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto& before = order[i - 1]->second.data;
    if (before.data() + before.size() > order[i]->second.data.data()) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("{}: tensor {}: its data overlaps that of {}",
                              name,
                              engine::quoted(order[i]->first),
                              engine::quoted(order[i - 1]->first)));
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(SafeType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::size_t bytes_of(SafeType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

Result<SafeTensors> parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const auto bad = [&](std::string_view why) {
    return fail(ErrorCode::InvalidModel, fmt::format("{}: header: {}", name, why));
  };
  std::uint64_t header = 0;
  if (bytes.size() < sizeof(header)) {
    return bad("the file is shorter than 8 bytes");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header > kMaxHeaderBytes || header > bytes.size() - sizeof(header)) {
    return bad(
        fmt::format("a length of {} in a file of {} bytes; this is not a safetensors file or it is "
                    "truncated",
                    header,
                    bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(header), header);
  BATON_ASSIGN(const auto doc, JsonDoc::parse(text, name));
  BATON_ASSIGN(const auto table, doc.root().to_object());
  const auto data = bytes.subspan(sizeof(header) + header);
  SafeTensors out;
  for (const auto field : table) {
    if (field.key == "__metadata__") {
      continue;
    }
    const std::string place = fmt::format("{}: tensor {}", name, engine::quoted(field.key));
    if (field.key.empty() || field.key.size() > kMaxTensorNameBytes) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("{}: a name of {} bytes; 1 to {} are allowed",
                              place,
                              field.key.size(),
                              kMaxTensorNameBytes));
    }
    BATON_ASSIGN(auto tensor, read_entry(JsonValue(field.value, place), data));
    if (!out.emplace(std::string(field.key), std::move(tensor)).second) {
      return fail(ErrorCode::InvalidModel, fmt::format("{}: the tensor occurs twice", place));
    }
  }
  BATON_TRY(check_overlap(out, name));
  return out;
}

}  // namespace baton::engine
