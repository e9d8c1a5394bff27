// Functions of one number that several kernels need, from IEEE operations alone: the same bits on
// every GPU and in the emulator. The polynomials are those of kernels/cpu/row_ops.h.
//
// Thread: pure functions. Failure: none; what is no number stays none.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

inline constexpr float kLog2E = 1.44269504F;

// 2^x by rounding to the nearest integer and a polynomial on [-1/2, 1/2] (relative error below
// 1e-7; exactly 1 at 0). Clamped to [-126, 127].
BATON_DEVICE float exp2_of(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: its low bits are the integer
  x = x < -126.0F ? -126.0F : x;
  x = x > 127.0F ? 127.0F : x;
  const float shifted = x + kMagic;
  const float f = x - (shifted - kMagic);
  // (2^f - 1) / f interpolated at six Chebyshev nodes.
  float p = 0.000154531634F;
  p = fma(p, f, 0.00133908633F);
  p = fma(p, f, 0.00961808302F);
  p = fma(p, f, 0.0555035695F);
  p = fma(p, f, 0.240226507F);
  p = fma(p, f, 0.693147182F);
  p = fma(p, f, 1.0F);
  return p * float_of((bits_of(shifted) + 127U) << 23);
}

// tanh(x) = 1 - 2 / (e^2x + 1)
BATON_DEVICE float tanh_of(float x) {
  return 1.0F - 2.0F / (exp2_of(x * (2.0F * kLog2E)) + 1.0F);
}

// x / (1 + 2^exponent): x * sigmoid(y) with -y * log2 e given.
BATON_DEVICE float sigmoid_times(float x, float exponent) {
  return x / (1.0F + exp2_of(exponent));
}
BATON_DEVICE float silu_of(float x) {
  return sigmoid_times(x, x * -kLog2E);
}
// The tanh form: x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3).
BATON_DEVICE float gelu_of(float x) {
  return sigmoid_times(x, fma(x * x * x, 0.044715F, x) * (-2.0F * kLog2E * 0.7978845608F));
}

}  // namespace baton::kernels::cuda
