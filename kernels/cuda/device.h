// What a kernel may ask of the device: the one seam between kernels that nvcc compiles and the same
// sources compiled as host code, where tests/support/cuda_emulator.h runs them.
//
// A kernel is a function template or function marked BATON_KERNEL that takes one plain struct of
// arguments. Its threads call the functions below; every warp is whole (32 threads), and what a
// warp does together (shuffles, ballots, tensor products, sync_warp) all its threads do at the same
// place. Reductions have one order and use no atomics; only whole numbers are added atomically.
//
//   BATON_KERNEL(threads)      a kernel of at most so many threads a block
//   BATON_DEVICE               a function that kernels call
//   BATON_MEMBER               the same for a member function
//   BATON_UNROLL               before a loop over registers
//   BATON_UNROLL_BY_4          before a long loop that indexes no registers
//   BATON_SHARED(Type, name)   one plain struct of shared memory, at most 48 KiB, once a kernel;
//                              it holds anything at first
//   dynamic_shared<Type>()     the bytes that the launch asked for, 16-byte aligned
//
// Compiled without contraction of products and sums (-fmad=false, -ffp-contract=off): `fma` is
// written where it is meant, so that both compilers round alike. Only tensor products round in the
// hardware's own way.
//
// Thread: a kernel's. Failure: none on the device; the emulator ends the process on divergence.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include "kernels/cuda/device_nvcc.h"
#else
#include "kernels/cuda/device_host.h"
#endif

namespace baton::kernels::cuda {

inline constexpr unsigned kWarp = 32;

// How many blocks of how many threads run a kernel, and its dynamic shared memory.
struct LaunchShape {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  unsigned threads = 32;  // a block; a multiple of 32
  std::size_t dynamic_shared = 0;

  std::size_t blocks() const { return std::size_t{x} * y * z; }
};

BATON_DEVICE unsigned lane_index() {
  return thread_index() % kWarp;
}
BATON_DEVICE unsigned warp_index() {
  return thread_index() / kWarp;
}
// What shuffle_xor gives, over all lanes and in one order: every lane holds the same bits.
BATON_DEVICE float warp_sum(float value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value += shuffle_xor(value, step);
  }
  return value;
}
// A NaN is passed over unless all are.
BATON_DEVICE float warp_max(float value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const float other = shuffle_xor(value, step);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace baton::kernels::cuda
