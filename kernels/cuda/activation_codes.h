// Prepares rows of float32 for the tensor-core products: as 8-bit codes in groups of 32, or as sums
// of two 16-bit floats. A row's numbers depend on that row alone.
//
// Thread: a kernel's. Failure: none; what is no number in a row makes the products of its group (8
// bits) or row (16 bits) no numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul_layout.h"

namespace baton::kernels::cuda {

// What a row is multiplied with and divided by must not be lost: below this all is zero.
inline constexpr float kSmallestMagnitude = 0x1p-100F;

inline constexpr unsigned kQuantiseThreads = 256;

BATON_DEVICE std::uint32_t warp_max_bits(std::uint32_t value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const std::uint32_t other = shuffle_xor(value, step);
    value = other > value ? other : value;
  }
  return value;
}

// A warp a group of 32. The largest magnitude is taken of the bits, so that a NaN is the largest.
[[maybe_unused]] static BATON_KERNEL(kQuantiseThreads) quantise_rows(QuantiseArgs args) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: leaves the nearest even integer
  const unsigned group = block_index() * (kQuantiseThreads / kWarp) + warp_index();
  if (group >= args.groups) {
    return;
  }
  const unsigned lane = lane_index();
  const float x = args.x[std::size_t{group} * kGroup + lane];
  const float largest = float_of(warp_max_bits(bits_of(x) & 0x7FFFFFFFU));
  const float factor = largest >= kSmallestMagnitude ? 127.0F / largest : 0.0F;
  const auto code = static_cast<std::int8_t>(bits_of(x * factor + kRound));
  float sum = static_cast<float>(code);  // whole numbers: exact in any order
  sum = warp_sum(sum);
  reinterpret_cast<std::int8_t*>(args.codes)[std::size_t{group} * kGroup + lane] = code;
  if (lane == 0) {
    // Where nothing is to be told apart: zero, or what is no number.
    const float scale = factor == 0.0F ? largest * 0.0F : largest / 127.0F;
    args.scales[group] = scale;
    args.sums[group] = scale * sum;
  }
}

inline constexpr unsigned kSplitThreads = 256;

// A block a row. F16 halves are of x divided by a power of two, so that none overflows.
template <FloatFormat kFormat>
[[maybe_unused]] static BATON_KERNEL(kSplitThreads) split_rows(SplitArgs args) {
  struct Shared {
    std::uint32_t largest[kSplitThreads / kWarp];
  };
  BATON_SHARED(Shared, shared);
  const std::size_t row = block_index();
  const float* const x = args.x + row * args.cols;
  float scale = 1.0F;
  float inverse = 1.0F;
  if constexpr (kFormat == FloatFormat::Half) {
    std::uint32_t largest = 0;
    for (unsigned i = thread_index(); i < args.cols; i += kSplitThreads) {
      const std::uint32_t bits = bits_of(x[i]) & 0x7FFFFFFFU;
      largest = bits > largest ? bits : largest;
    }
    largest = warp_max_bits(largest);
    if (lane_index() == 0) {
      shared.largest[warp_index()] = largest;
    }
    sync_threads();
    for (unsigned i = 0; i < kSplitThreads / kWarp; ++i) {
      largest = shared.largest[i] > largest ? shared.largest[i] : largest;
    }
    // The largest magnitude comes to lie in [1, 2); far from the ends of the exponent's range.
    std::uint32_t exponent = largest >> 23;
    exponent = exponent < 27 ? 27 : exponent > 227 ? 227 : exponent;
    scale = float_of(exponent << 23);
    inverse = float_of((254 - exponent) << 23);
  }
  for (unsigned i = thread_index(); i < args.padded; i += kSplitThreads) {
    const float value = i < args.cols ? x[i] * inverse : 0.0F;
    std::uint16_t high = 0;
    std::uint16_t low = 0;
    if constexpr (kFormat == FloatFormat::Half) {
      high = half_of(value);
      low = half_of(value - float_of_half(high));
    } else {
      high = bfloat_of(value);
      low = bfloat_of(value - float_of_bfloat(high));
    }
    args.high[row * args.padded + i] = high;
    args.low[row * args.padded + i] = low;
  }
  if (thread_index() == 0) {
    args.scales[row] = scale;
  }
}

}  // namespace baton::kernels::cuda
