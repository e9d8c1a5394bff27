// What the sampling kernels are given: rows of logits, and what
// kernels/sampling_rows.h says of each.
//
// Thread: plain values. Failure: none; tokens that the vocabulary does not have are passed over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/sampling_rows.h"

namespace baton::kernels::cuda {

struct SampleArgs {
  float* logits = nullptr;  // [rows][vocab], overwritten
  const SampleRow* rows = nullptr;
  const TokenBias* biases = nullptr;
  const SeenToken* seen = nullptr;
  const std::int32_t* barred = nullptr;
  const std::uint32_t* masks = nullptr;  // [mask][(vocab + 31) / 32], bit t % 32 of word t / 32
  std::int32_t* tokens = nullptr;        // [rows], the answer
  std::uint32_t num_rows = 0;
  std::uint32_t vocab = 0;
};

}  // namespace baton::kernels::cuda
