// Attention of one step's layer: plans its blocks, copies the plan in, launches.
//
// Owner: a backend. Thread: its caller. Failure: as scratch.h.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/scratch.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

class AttentionRunner {
 public:
  explicit AttentionRunner(Device& device)
      : device_(device), prefill_(device), decode_(device), join_(device), partials_(device) {}

  // `pages.tables`: the slices' block tables, one behind the other. q, out: as Backend::attention.
  void run(const KvPages& pages,
           const AttentionParams& params,
           std::span<const AttentionSlice> slices,
           const float* q,
           std::size_t q_stride,
           float* out);

 private:
  Device& device_;
  AttentionPlan plan_;
  Scratch<AttentionTile> prefill_;
  Scratch<AttentionTile> decode_;
  Scratch<AttentionTile> join_;
  Scratch<float> partials_;
};

}  // namespace baton::kernels::cuda
