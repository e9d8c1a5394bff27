// Element types of weights as GGUF files store them, and the sizes of their blocks.
// Source: the GGUF/GGML tensor type table.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::kernels {

enum class DType : std::uint8_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct DTypeInfo {
  std::string_view name;
  std::uint32_t block_elements;  // a row's length is a multiple of it
  std::uint32_t block_bytes;
};

constexpr DTypeInfo info(DType type) {
  switch (type) {
    case DType::F32:
      return {"F32", 1, 4};
    case DType::F16:
      return {"F16", 1, 2};
    case DType::BF16:
      return {"BF16", 1, 2};
    case DType::Q4_0:
      return {"Q4_0", 32, 18};
    case DType::Q4_1:
      return {"Q4_1", 32, 20};
    case DType::Q5_0:
      return {"Q5_0", 32, 22};
    case DType::Q5_1:
      return {"Q5_1", 32, 24};
    case DType::Q8_0:
      return {"Q8_0", 32, 34};
    case DType::Q4_K:
      return {"Q4_K", 256, 144};
    case DType::Q5_K:
      return {"Q5_K", 256, 176};
    case DType::Q6_K:
      return {"Q6_K", 256, 210};
  }
  return {"?", 1, 0};
}

constexpr std::size_t row_bytes(DType type, std::size_t elements) {
  return elements / info(type).block_elements * info(type).block_bytes;
}

}  // namespace baton::kernels
