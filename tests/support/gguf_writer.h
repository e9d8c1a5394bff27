// Writes GGUF bytes (version 3): what the tests' tiny models and hostile files are made of.
//
// Thread: one. Failure: none; what is added is written, sense or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace baton::testing {

class GgufWriter {
 public:
  void add_uint(std::string_view key, std::uint32_t value);
  void add_float(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_floats(std::string_view key, std::span<const float> values);
  void add_ints(std::string_view key, std::span<const std::int32_t> values);
  // A value with bytes as given: type number, then the raw bytes.
  void add_raw(std::string_view key, std::uint32_t type, std::span<const std::byte> bytes);
  // `dims` as GGUF has them: the row length first.
  void add_tensor(std::string_view name,
                  std::span<const std::uint64_t> dims,
                  kernels::DType type,
                  std::span<const std::byte> data);
  // Header, padding and data, 32-byte aligned.
  std::vector<std::byte> bytes() const;

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type;
    std::uint64_t offset;
  };
  void key(std::string_view key, std::uint32_t type);

  std::uint64_t num_values_ = 0;
  std::vector<std::byte> values_;
  std::vector<Tensor> tensors_;
  std::vector<std::byte> data_;
};

// The number of a type in the GGML tensor type table.
std::uint32_t ggml_type_number(kernels::DType type);

}  // namespace baton::testing
