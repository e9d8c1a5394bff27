// Chooses a row's experts: its `used` largest logits, the lower index first among equals, and their
// share of the softmax. A warp a row; the largest are found one after the other.
//
// Thread: a kernel's. Failure: none; a logit that is no number is never chosen while others are
// left, and spoils the weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/block_sums.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/math.h"

namespace baton::kernels::cuda {

struct RouteArgs {
  const float* logits = nullptr;     // [rows][count]
  std::uint32_t* experts = nullptr;  // [rows][used]
  float* weights = nullptr;          // [rows][used]
  std::uint32_t rows = 0;
  std::uint32_t count = 0;
  std::uint32_t used = 0;  // 1 to count
  bool renormalise = false;
};

inline LaunchShape route_shape(const RouteArgs& args) {
  return {.x = args.rows, .threads = kWarp};
}

[[maybe_unused]] static BATON_KERNEL(kWarp) route_rows(RouteArgs args) {
  const float* const logits = args.logits + std::size_t{block_index()} * args.count;
  std::uint32_t* const experts = args.experts + std::size_t{block_index()} * args.used;
  float* const weights = args.weights + std::size_t{block_index()} * args.used;
  // Logit and index as one number: larger is better, and no two are equal.
  const auto rank = [&](unsigned expert) {
    return std::uint64_t{ordered(logits[expert])} << 32 | (0xFFFFFFFFU - expert);
  };
  std::uint64_t last = ~std::uint64_t{0};
  float largest = 0.0F;
  for (unsigned j = 0; j < args.used; ++j) {
    std::uint64_t best = 0;
    for (unsigned expert = lane_index(); expert < args.count; expert += kWarp) {
      const std::uint64_t mine = rank(expert);
      best = mine < last && mine > best ? mine : best;
    }
    for (unsigned step = kWarp / 2; step > 0; step /= 2) {
      const std::uint64_t other = shuffle_xor(best, step);
      best = other > best ? other : best;
    }
    last = best;
    const unsigned expert = 0xFFFFFFFFU - static_cast<std::uint32_t>(best);
    largest = j == 0 ? logits[expert] : largest;
    if (lane_index() == 0) {
      experts[j] = expert;
      weights[j] = exp2_of((logits[expert] - largest) * kLog2E);
    }
  }
  sync_warp();
  float total = 0.0F;
  if (args.renormalise) {
    for (unsigned j = 0; j < args.used; ++j) {
      total += weights[j];
    }
  } else {
    for (unsigned expert = lane_index(); expert < args.count; expert += kWarp) {
      total += exp2_of((logits[expert] - largest) * kLog2E);
    }
    total = warp_sum(total);
  }
  sync_warp();
  for (unsigned j = lane_index(); j < args.used; j += kWarp) {
    weights[j] = weights[j] / total;
  }
}

}  // namespace baton::kernels::cuda
