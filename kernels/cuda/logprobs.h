// Log-probabilities of rows of logits as they come from the model: the largest logit with the mass
// behind it, from which the host takes the logarithm, and the best tokens. A block a row.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/block_sums.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/sample.h"

namespace baton::kernels::cuda {

struct LogprobArgs {
  const float* logits = nullptr;       // [rows][vocab]
  float* best = nullptr;               // [rows] the largest logit
  std::uint64_t* mass = nullptr;       // [rows] sum of e^(logit - best), in units of 2^-44
  std::int32_t* top_tokens = nullptr;  // [rows][top], best first, the lower token among equals
  float* top_logits = nullptr;         // [rows][top]
  std::uint32_t num_rows = 0;
  std::uint32_t vocab = 0;
  std::uint32_t top = 0;  // at most vocab
};

inline LaunchShape logprobs_shape(const LogprobArgs& args) {
  return {.x = args.num_rows, .threads = kSampleThreads};
}

[[maybe_unused]] static BATON_KERNEL(kSampleThreads) row_logprobs(LogprobArgs args) {
  BATON_SHARED(BlockNumbers<kSampleThreads>, shared);
  const std::size_t row = block_index();
  const float* const logits = args.logits + row * args.vocab;
  float best = 0.0F;
  std::uint64_t last = ~std::uint64_t{0};
  // One token after the other, each the largest below the one before; at least one, for its logit.
  for (unsigned n = 0; n == 0 || n < args.top; ++n) {
    std::uint64_t largest = 0;
    for (unsigned i = thread_index(); i < args.vocab; i += kSampleThreads) {
      const std::uint64_t mine = std::uint64_t{ordered(logits[i])} << 32 | (0xFFFFFFFFU - i);
      largest = mine < last && mine > largest ? mine : largest;
    }
    last = block_combine(shared, largest, Largest{});
    const std::uint32_t token = 0xFFFFFFFFU - static_cast<std::uint32_t>(last);
    best = n == 0 ? logits[token] : best;
    if (thread_index() == 0 && n < args.top) {
      args.top_tokens[row * args.top + n] = static_cast<std::int32_t>(token);
      args.top_logits[row * args.top + n] = logits[token];
    }
  }
  std::uint64_t mass = 0;
  for (unsigned i = thread_index(); i < args.vocab; i += kSampleThreads) {
    mass += mass_of(logits[i], best);
  }
  mass = block_combine(shared, mass, Sum{});
  if (thread_index() == 0) {
    args.best[row] = best;
    args.mass[row] = mass;
  }
}

}  // namespace baton::kernels::cuda
