// Takes GGUF weight blocks apart: the one place that knows how each quantised type lies in a file.
// Source: the block layouts of the GGUF/GGML tensor types.
//
// Thread: pure functions. Failure: none; callers have checked sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/ops.h"

namespace baton::kernels {

// A quantised type as groups of elements: value = scale * (code - offset) + min, with one scale and
// one min a group; scale and min are exact in float32.
struct QuantShape {
  std::uint32_t bits = 0;   // of a code; 0: not a quantised type
  std::uint32_t group = 0;  // elements that share a scale: 32 or 16
  std::int32_t offset = 0;
  bool has_min = false;
};

constexpr QuantShape quant_shape(DType type) {
  switch (type) {
    case DType::Q4_0:
      return {4, 32, 8, false};
    case DType::Q4_1:
      return {4, 32, 0, true};
    case DType::Q5_0:
      return {5, 32, 16, false};
    case DType::Q5_1:
      return {5, 32, 0, true};
    case DType::Q8_0:
      return {8, 32, 128, false};
    case DType::Q4_K:
      return {4, 32, 0, true};
    case DType::Q5_K:
      return {5, 32, 0, true};
    case DType::Q6_K:
      return {6, 16, 32, false};
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  return {};
}

constexpr bool is_quantised(DType type) {
  return quant_shape(type).bits != 0;
}

// One file block. codes: [block_elements]; scales, mins: [block_elements / group] (mins are 0 for a
// type without).
void decode_block(
    DType type, const std::byte* block, std::uint8_t* codes, float* scales, float* mins);

// The integers behind a K-type block's scales: scale = d * scales[group], min = -dmin *
// mins[group].
struct RawKScales {
  std::uint16_t d = 0;           // f16 bits
  std::uint16_t dmin = 0;        // f16 bits; Q6_K: none
  std::uint8_t scales[16] = {};  // Q4_K, Q5_K: 8, unsigned; Q6_K: 16, signed
  std::uint8_t mins[8] = {};
};
RawKScales raw_k_scales(DType type, const std::byte* block);

// One row of `cols` elements as float32.
void dequantise_row(DType type, const std::byte* row, std::size_t cols, float* out);

// Shape and size of a weight against its bytes.
Status check_weight(const WeightView& weight);

}  // namespace baton::kernels
