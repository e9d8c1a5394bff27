// Attention of one layer by the step's plan (step_image.h).
//
// Owner: a backend. Thread: its caller. Failure: as scratch.h.
#pragma once

#include <cstddef>

#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/scratch.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

class AttentionRunner {
 public:
  explicit AttentionRunner(Device& device) : device_(device), partials_(device) {}

  // `tiles`: the plan of params.window, which points into pages.tables. q, out: as
  // Backend::attention.
  void run(const KvPages& pages,
           const AttentionParams& params,
           const PlannedTiles& tiles,
           const float* q,
           std::size_t q_stride,
           float* out);

 private:
  Device& device_;
  Scratch<float> partials_;
};

}  // namespace baton::kernels::cuda
