// exp, log, cos and sin with the same bits on every machine: written out in IEEE operations that
// round exactly, so that no answer depends on the C library or on the instruction set. For use
// outside of kernels (rotary angles, sampling), where the last bit of accuracy does not matter but
// equality does.
//
// Thread: pure functions. Failure: none; arguments outside the stated range are clamped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// e^x to about 1e-15 relative; 0 below -708, the largest finite power above 709.
double fixed_exp(double x);
// Natural logarithm to about 1e-15. REQUIRES: x is a positive normal number.
double fixed_log(double x);
// REQUIRES: |x| < 1e8. To about 1e-9 absolute at the far end, 1e-15 near 0.
void fixed_sincos(double x, double& sine, double& cosine);

// out[i] = e^(x[i] + shift), to about 3e-7 relative; 0 below -87. Returns the sum, added in a fixed
// order. x and out may alias. [n]
double fixed_exp_row(const float* x, std::size_t n, float shift, float* out);

// The exponential of one element of such a row. For kernels too.
constexpr float fixed_exp_lane(float v) {
  constexpr float kShifter = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float low = v < -87.0F ? -87.0F : v;
  const float clamped = low > 88.0F ? 88.0F : low;
  const float shifted = clamped * 1.44269504F + kShifter;
  const float k = shifted - kShifter;
  const float r = (clamped - k * 0.693359375F) + k * 2.12194440e-4F;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const std::uint32_t exponent = (__builtin_bit_cast(std::uint32_t, shifted) - 0x4B400000U + 127U)
                                 << 23U;
  const std::uint32_t keep = v < -87.0F ? 0U : ~0U;  // tiny powers are 0
  return __builtin_bit_cast(
      float, __builtin_bit_cast(std::uint32_t, p * __builtin_bit_cast(float, exponent)) & keep);
}

}  // namespace baton
