// Conversion between float32 and the 16-bit float formats, rounding to nearest even, bit by bit so
// that every machine agrees. `static` on purpose: translation units built for different instruction
// sets include this, and must not share one definition (so no std::bit_cast either).
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstdint>

namespace baton::kernels {

[[maybe_unused]] static inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) {
    // A signalling NaN becomes quiet, as the hardware conversion does it.
    const std::uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return __builtin_bit_cast(float, sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // A subnormal is mantissa * 2^-24, which float32 holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) | sign);
  }
  return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
}

[[maybe_unused]] static inline std::uint16_t float_to_half(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below the smallest normal half: a multiple of 2^-24
    // Adding 0.5 leaves the value rounded to a multiple of 2^-24 in the low mantissa bits.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, shifted) -
                                              __builtin_bit_cast(std::uint32_t, 0.5F)));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

[[maybe_unused]] static inline float bfloat_to_float(std::uint16_t value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16);
}

}  // namespace baton::kernels
