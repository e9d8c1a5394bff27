// Cuts one attention call into jobs that threads take one by one. Slices of many rows go by tiles
// of rows; a slice of few rows whose past is a large part of all work goes by chunks of positions,
// whose partial results a second round of jobs merges. Both give the same bits.
//
// Thread: the caller's. Failure: none.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

class AttentionPlan {
 public:
  // Jobs point into the arguments and into this plan; they are good until the next `make`.
  void make(const KvArenaView& arena,
            const AttentionParams& params,
            std::span<const AttentionSlice> slices,
            const float* q,
            std::size_t q_stride,
            float* out,
            unsigned threads);

  std::span<const AttentionJob> attend() const { return attend_; }
  std::span<const AttentionJob> merge() const { return merge_; }
  std::size_t merge_floats() const { return partial_floats_; }  // what the merge jobs read

 private:
  // A slice of few rows that sees more than `most_chunks` is cut into those.
  void add_slice(AttentionJob job,
                 const AttentionSlice& slice,
                 unsigned threads,
                 std::size_t most_chunks);

  std::vector<AttentionJob> attend_;
  std::vector<AttentionJob> merge_;
  std::vector<std::size_t> attend_places_;  // where each job's partials begin
  std::vector<std::size_t> merge_places_;
  Scratch<float> partials_;
  std::size_t partial_floats_ = 0;
};

}  // namespace baton::kernels::cpu
