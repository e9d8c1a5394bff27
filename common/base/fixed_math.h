// exp, log, cos and sin with the same bits on every machine: written out in IEEE operations that
// round exactly, so that no answer depends on the C library or on the instruction set. For use
// outside of kernels (rotary angles, sampling), where the last bit of accuracy does not matter but
// equality does.
//
// Thread: pure functions. Failure: none; arguments outside the stated range are clamped.
#pragma once

#include <cstddef>

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

}  // namespace baton
