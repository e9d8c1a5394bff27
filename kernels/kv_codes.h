// Rounding keys and values of one token and head to codes. Plain float32 and integer code
// that gives the same bits on every machine; the reference, the CPU and the CUDA backend all write
// with it (constexpr, so that kernels may call it).
//
// A row's scale is its largest magnitude divided by the largest code. A row of zeros has scale 0; a
// row that holds what is no number has a scale that is none, so that whoever reads it gets none.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::kernels {

inline constexpr float kLargestInt8 = 127.0F;
// So small that a query's codes may be as fine: their products add up in 32 bits.
inline constexpr float kLargestInt16 = 4095.0F;
inline constexpr float kLargestE4m3 = 448.0F;

// FP8 E4M3 (four bits of exponent, three of mantissa, no infinities; 0x7F is NaN).
[[maybe_unused]] static constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7F) {
    return __builtin_nanf("");
  }
  // Shifted into place the number is 2^120 too small; below 2^-6 it is a multiple of 2^-9.
  const float value = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9F
                                    : __builtin_bit_cast(float, (magnitude << 20) + (120U << 23));
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, value) | sign);
}

// To nearest, ties to even; what is larger than 448, and a NaN, becomes 448.
[[maybe_unused]] static constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t bounded = magnitude < 0x43E00000U ? magnitude : 0x43E00000U;  // 448
  const std::uint32_t normal = ((bounded + 0x7FFFFU + ((bounded >> 20) & 1U)) >> 20) - (120U << 3);
  // Adding 2^14 leaves a multiple of 2^-9 in the low bits.
  const float shifted = __builtin_bit_cast(float, bounded) + 16384.0F;
  const std::uint32_t small =
      __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, 16384.0F);
  const std::uint32_t code = bounded < 0x3C800000U ? small : normal;  // 2^-6
  return static_cast<std::uint8_t>(code | ((bits >> 24) & 0x80U));
}

// The largest magnitude of a row; compared as bits, so that a NaN is the largest of all.
[[maybe_unused]] static inline float largest_magnitude(const float* x, std::size_t n) {
  std::uint32_t top = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFU;
    top = magnitude > top ? magnitude : top;
  }
  return __builtin_bit_cast(float, top);
}

// What a row is multiplied with before it is rounded; 0 where nothing can be told apart.
[[maybe_unused]] static constexpr float code_factor(float largest, float most) {
  return largest >= 0x1p-100F ? most / largest : 0.0F;
}
// What the codes of a row are multiplied with.
[[maybe_unused]] static constexpr float code_scale(float largest, float most) {
  return code_factor(largest, most) == 0.0F ? largest * 0.0F : largest / most;
}
// The nearest whole number. The sum's low bits are the number; a NaN's are not, and its row's scale
// is NaN as well.
template <class Code>
constexpr Code whole_code(float x, float factor) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: leaves the nearest even integer
  return static_cast<Code>(__builtin_bit_cast(std::uint32_t, x * factor + kRound));
}

// codes = x / scale, the largest of them `most`. Returns the scale.
template <class Code>
float to_whole(const float* x, std::size_t n, float most, Code* codes) {
  const float largest = largest_magnitude(x, n);
  const float factor = code_factor(largest, most);
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = whole_code<Code>(x[i], factor);
  }
  return code_scale(largest, most);
}
[[maybe_unused]] static inline float to_int8(const float* x, std::size_t n, std::int8_t* codes) {
  return to_whole(x, n, kLargestInt8, codes);
}
[[maybe_unused]] static inline float to_int16(const float* x, std::size_t n, std::int16_t* codes) {
  return to_whole(x, n, kLargestInt16, codes);
}
[[maybe_unused]] static inline float to_e4m3(const float* x, std::size_t n, std::uint8_t* codes) {
  const float largest = largest_magnitude(x, n);
  const float factor = code_factor(largest, kLargestE4m3);
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = float_to_e4m3(x[i] * factor);
  }
  return code_scale(largest, kLargestE4m3);
}

}  // namespace baton::kernels
