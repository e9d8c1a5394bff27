// Chooses tokens on the device: how each row is sampled goes in by one copy, the tokens come back.
//
// Owner: a backend. Thread: its caller. Failure: as scratch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/host_image.h"
#include "kernels/cuda/scratch.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

class SamplingRunner {
 public:
  explicit SamplingRunner(Device& device) : device_(device), image_(device), tokens_(device) {}

  // As Backend::sample.
  void run(float* logits, std::size_t vocab, const SampleRows& rows, TokenId* tokens);

 private:
  Device& device_;
  HostImage image_;
  Scratch<std::int32_t> tokens_;
};

}  // namespace baton::kernels::cuda
