#include "engine/step/planner.h"

#include <algorithm>

namespace baton::engine {
namespace {

void add_chunks(std::span<Sequence* const> sequences,
                std::uint32_t chunk,
                std::uint32_t budget,
                std::vector<PlannedSlice>& slices,
                std::size_t max_slices) {
  for (Sequence* sequence : sequences) {
    if (budget == 0 || slices.size() >= max_slices) {
      return;
    }
    if (!sequence->is_prefilling()) {
      continue;
    }
    const std::uint32_t count = std::min({sequence->num_pending(), chunk, budget});
    slices.push_back({sequence, count});
    budget -= count;
  }
}

}  // namespace

std::vector<PlannedSlice> plan_prefill(std::span<Sequence* const> oldest_first,
                                       const PrefillLimits& limits) {
  std::vector<PlannedSlice> slices;
  add_chunks(oldest_first, limits.chunk_tokens, limits.step_tokens, slices, oldest_first.size());
  return slices;
}

std::vector<PlannedSlice> plan_decode(std::span<Sequence* const> oldest_first,
                                      const DecodeLimits& limits) {
  std::vector<PlannedSlice> slices;
  for (Sequence* sequence : oldest_first) {
    if (slices.size() >= limits.max_batch) {
      break;
    }
    if (!sequence->is_prefilling()) {
      slices.push_back({sequence, sequence->num_pending()});
    }
  }
  add_chunks(oldest_first, limits.prefill_tokens, limits.prefill_tokens, slices, limits.max_batch);
  return slices;
}

StepPlan to_step_plan(std::span<const PlannedSlice> slices) {
  StepPlan plan;
  plan.slices.reserve(slices.size());
  for (const PlannedSlice& slice : slices) {
    plan.slices.push_back(slice.sequence->slice(slice.count));
  }
  return plan;
}

}  // namespace baton::engine
