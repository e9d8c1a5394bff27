// The tensor products of a warp on the CPU, element by element from the fragment layout of the PTX
// ISA (kernels/cuda/device_host.h draws it).
//
// Thread: pure functions. Failure: none.
#pragma once

#include <array>
#include <cstdint>

namespace baton::testing {

// One lane's fragments; c holds bits of float or of int32.
struct MmaPart {
  std::uint32_t a[4];
  std::uint32_t b[2];
  std::uint32_t c[4];
};
using WarpMma = std::array<MmaPart*, 32>;

// c += a · b. Sums of floats are taken in double and rounded once.
void multiply_half(const WarpMma& lanes);    // m16n8k16
void multiply_bfloat(const WarpMma& lanes);  // m16n8k16
void multiply_int8(const WarpMma& lanes);    // m16n8k32, wraps

}  // namespace baton::testing
