// What the threads of a block know together: sums and extremes of whole numbers, which any order
// gives alike.
//
// Thread: a kernel's; all threads of the block call. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

// A number a warp, and room for the answer.
template <unsigned kThreads>
struct BlockNumbers {
  unsigned long long warps[kThreads / kWarp];
};

// `combine` of all threads' numbers, the same for every thread.
template <unsigned kThreads, class Combine>
BATON_DEVICE std::uint64_t block_combine(BlockNumbers<kThreads>& shared,
                                         std::uint64_t value,
                                         const Combine& combine) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value = combine(value, shuffle_xor(value, step));
  }
  sync_threads();  // the room may still be read from
  if (lane_index() == 0) {
    shared.warps[warp_index()] = value;
  }
  sync_threads();
  std::uint64_t all = shared.warps[0];
  for (unsigned warp = 1; warp < kThreads / kWarp; ++warp) {
    all = combine(all, std::uint64_t{shared.warps[warp]});
  }
  return all;
}

struct Sum {
  BATON_MEMBER std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; }
};
struct Largest {
  BATON_MEMBER std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    return a > b ? a : b;
  }
};
struct Least {
  BATON_MEMBER std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    return a < b ? a : b;
  }
};

// Unsigned numbers in the order of floats: -0 is 0, and what is no number lies below all.
BATON_DEVICE std::uint32_t ordered(float x) {
  const std::uint32_t bits = bits_of(x + 0.0F);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return 0;
  }
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
BATON_DEVICE float float_of_ordered(std::uint32_t key) {
  return float_of((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

}  // namespace baton::kernels::cuda
