// Rows times the Hadamard matrix in place, a warp a block of numbers. The sums and differences of
// kernels/hadamard.h, so the same bits.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kHadamardThreads = 128;
inline constexpr unsigned kMostHadamard = 256;  // numbers a block

struct HadamardArgs {
  float* x = nullptr;        // [blocks][size]
  std::uint32_t blocks = 0;  // one behind the other
  std::uint32_t size = 0;    // a power of two
  float factor = 1.0F;
};

inline LaunchShape hadamard_shape(const HadamardArgs& args) {
  constexpr unsigned kWarps = kHadamardThreads / kWarp;
  return {.x = (args.blocks + kWarps - 1) / kWarps, .threads = kHadamardThreads};
}

struct HadamardShared {
  float numbers[kHadamardThreads / kWarp][kMostHadamard];
};

[[maybe_unused]] static BATON_KERNEL(kHadamardThreads) hadamard(HadamardArgs args) {
  BATON_SHARED(HadamardShared, shared);
  const unsigned block = block_index() * (kHadamardThreads / kWarp) + warp_index();
  if (block >= args.blocks) {
    return;
  }
  float* const numbers = shared.numbers[warp_index()];
  float* const x = args.x + std::size_t{block} * args.size;
  for (unsigned i = lane_index(); i < args.size; i += kWarp) {
    numbers[i] = x[i];
  }
  for (unsigned half = 1; half < args.size; half *= 2) {
    sync_warp();
    for (unsigned pair = lane_index(); pair < args.size / 2; pair += kWarp) {
      float* const at = numbers + pair / half * 2 * half + pair % half;
      const float a = at[0];
      const float b = at[half];
      at[0] = a + b;
      at[half] = a - b;
    }
  }
  sync_warp();
  for (unsigned i = lane_index(); i < args.size; i += kWarp) {
    x[i] = numbers[i] * args.factor;
  }
}

}  // namespace baton::kernels::cuda
