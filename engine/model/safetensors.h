// The inside of one safetensors file: the table of tensors, parsed from untrusted bytes. Tensor
// data stays where it is and is borrowed as views.
//
// Source: the safetensors format: eight bytes of header length (little-endian), a JSON object
// {name: {dtype, shape, data_offsets}}, then the data that the offsets count from.
// Thread: const after parsing. Failure: InvalidModel with the file, the tensor and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::engine {

enum class SafeType : std::uint8_t {
  Bool,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  F64,
  I64,
  U64
};

std::string_view to_string(SafeType type);
std::size_t bytes_of(SafeType type);  // of one element

struct SafeTensor {
  SafeType type = SafeType::F32;
  std::vector<std::uint64_t> shape;  // at most 8 dimensions; none: one element
  std::span<const std::byte> data;

  std::uint64_t elements() const { return data.size() / bytes_of(type); }
};

using SafeTensors = std::map<std::string, SafeTensor, std::less<>>;

// `bytes` outlives the result. `name` is used in messages only.
Result<SafeTensors> parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

}  // namespace baton::engine
