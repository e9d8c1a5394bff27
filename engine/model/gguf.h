// The inside of a GGUF file: metadata values and the table of tensors, parsed from untrusted bytes.
// Strings, arrays and tensor data stay where they are and are borrowed as views; a count from the
// file never sizes an allocation before it is bounded by the bytes that are left.
//
// Source: the GGUF file format, versions 2 and 3 (little-endian).
// Thread: const after parsing. Failure: InvalidModel with the file, the key or tensor and the byte
// offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "kernels/ops.h"

namespace baton::engine {

enum class GgufType : std::uint32_t {
  UInt8 = 0,
  Int8 = 1,
  UInt16 = 2,
  Int16 = 3,
  UInt32 = 4,
  Int32 = 5,
  Float32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  UInt64 = 10,
  Int64 = 11,
  Float64 = 12,
};

// An array's elements as they lie in the file, already walked once: `count` elements fill `bytes`.
struct GgufArray {
  GgufType element = GgufType::UInt8;
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;
};

// Integers of all widths are widened; a string is a view into the file.
using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

struct GgufFile {
  std::map<std::string, GgufValue, std::less<>> values;
  std::map<std::string, kernels::WeightView, std::less<>> tensors;
  std::size_t data_offset = 0;  // where tensor data begins; everything before is header
};

// `bytes` outlives the result. `name` is used in messages only.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, std::string_view name);

// Elements of checked arrays; another element type gives nullopt-like emptiness through `false`.
bool read_strings(const GgufArray& array, std::vector<std::string>& out);
bool read_floats(const GgufArray& array, std::vector<float>& out);
bool read_ints(const GgufArray& array, std::vector<std::int64_t>& out);

// Foreign text made fit for a message: short, printable, in quotes.
std::string quoted(std::string_view text);

}  // namespace baton::engine
