// Before a draw: bias, penalties over the past, barred tokens and the grammar's mask, in this
// order, a block a row. A token is in each list once, so no two threads change one logit.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/sampling_args.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kEditThreads = 256;

inline LaunchShape edit_logits_shape(const SampleArgs& args) {
  return {.x = args.num_rows, .threads = kEditThreads};
}

[[maybe_unused]] static BATON_KERNEL(kEditThreads) edit_logits(SampleArgs args) {
  constexpr float kBarred = -__builtin_huge_valf();
  const SampleRow& row = args.rows[block_index()];
  float* const logits = args.logits + std::size_t{block_index()} * args.vocab;
  const auto known = [&](std::int32_t token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < args.vocab;
  };
  for (unsigned i = thread_index(); i < row.biases.count; i += kEditThreads) {
    const TokenBias& entry = args.biases[row.biases.first + i];
    if (known(entry.token)) {
      logits[entry.token] += entry.bias;
    }
  }
  sync_threads();
  for (unsigned i = thread_index(); i < row.seen.count; i += kEditThreads) {
    const SeenToken& entry = args.seen[row.seen.first + i];
    if (!known(entry.token)) {
      continue;
    }
    float& logit = logits[entry.token];
    logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (entry.times > 0) {
      logit -= row.presence_penalty + static_cast<float>(entry.times) * row.frequency_penalty;
    }
  }
  sync_threads();
  for (unsigned i = thread_index(); i < row.barred.count; i += kEditThreads) {
    const std::int32_t token = args.barred[row.barred.first + i];
    if (known(token)) {
      logits[token] = kBarred;
    }
  }
  if (row.mask == kNoMask) {
    return;
  }
  sync_threads();
  const std::uint32_t* const words = args.masks + std::size_t{row.mask} * ((args.vocab + 31) / 32);
  for (unsigned i = thread_index(); i < args.vocab; i += kEditThreads) {
    if ((words[i / 32] >> (i % 32) & 1U) == 0) {
      logits[i] = kBarred;
    }
  }
}

}  // namespace baton::kernels::cuda
