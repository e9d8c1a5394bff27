#include "engine/step/planner.h"

#include <algorithm>

namespace baton::engine {
namespace {

// Of a step's tokens, kept for prompts that end within it.
constexpr std::uint32_t kShortShare = 4;

StepShape plus(StepShape shape, const StepShape& more) {
  shape.rows += more.rows;
  shape.prompt_rows += more.prompt_rows;
  shape.context += more.context;
  return shape;
}

StepShape shape_of_one(const PlannedSlice& slice) {
  return shape_of(std::span(&slice, 1));
}

// The most of `most` prompt tokens that still meet the target, but kLeastPrefill at least.
std::uint32_t fitting_chunk(Sequence& sequence,
                            std::uint32_t most,
                            const StepShape& shape,
                            const DecodeLimits& limits,
                            const StepCost& cost) {
  const auto fits = [&](std::uint32_t count) {
    return cost.predict(plus(shape, shape_of_one({&sequence, count}))) <= limits.step_seconds;
  };
  std::uint32_t low = std::min(most, kLeastPrefill);
  std::uint32_t high = most;
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

std::vector<Sequence*> by_urgency(std::span<const PrefillWish> oldest_first,
                                  TimePoint now,
                                  Duration patience) {
  std::vector<PrefillWish> wishes(oldest_first.begin(), oldest_first.end());
  for (PrefillWish& wish : wishes) {
    if (now - wish.arrived >= patience) {
      wish.deadline = TimePoint::min();
    }
  }
  std::ranges::stable_sort(wishes, {}, &PrefillWish::deadline);
  std::vector<Sequence*> sequences;
  for (const PrefillWish& wish : wishes) {
    sequences.push_back(wish.sequence);
  }
  return sequences;
}

std::vector<PlannedSlice> plan_prefill(std::span<Sequence* const> most_urgent_first,
                                       const PrefillLimits& limits) {
  std::vector<std::uint32_t> counts(most_urgent_first.size(), 0);
  std::uint32_t budget = limits.step_tokens;
  std::uint32_t share = limits.step_tokens / kShortShare;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::uint32_t pending = most_urgent_first[i]->num_pending();
    if (pending <= std::min(share, limits.chunk_tokens)) {
      counts[i] = pending;
      share -= pending;
      budget -= pending;
    }
  }
  std::vector<PlannedSlice> slices;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Sequence* sequence = most_urgent_first[i];
    if (counts[i] == 0) {
      counts[i] = std::min({sequence->num_pending(), limits.chunk_tokens, budget});
      budget -= counts[i];
    }
    if (counts[i] > 0) {
      slices.push_back({sequence, counts[i]});
    }
  }
  return slices;
}

std::vector<PlannedSlice> plan_decode(std::span<const DecodeWish> oldest_first,
                                      const DecodeLimits& limits,
                                      const StepCost& cost) {
  const bool has_target = limits.step_seconds > 0;
  std::vector<DecodeWish> decoding;
  for (const DecodeWish& wish : oldest_first) {
    if (!wish.sequence->is_prefilling()) {
      decoding.push_back(wish);
    }
  }
  std::ranges::stable_sort(decoding, {}, &DecodeWish::last_turn);
  std::vector<PlannedSlice> slices;
  StepShape shape;
  for (const DecodeWish& wish : decoding) {
    const PlannedSlice slice{wish.sequence, wish.sequence->num_pending()};
    const StepShape with = plus(shape, shape_of_one(slice));
    if (slices.size() >= limits.max_batch ||
        (has_target && !slices.empty() && cost.predict(with) > limits.step_seconds)) {
      break;
    }
    shape = with;
    slices.push_back(slice);
  }
  const bool is_bounded = has_target && !slices.empty();  // nobody waits for a prompt alone
  std::uint32_t budget = limits.prefill_tokens;
  for (const DecodeWish& wish : oldest_first) {
    Sequence& sequence = *wish.sequence;
    if (budget == 0 || slices.size() >= limits.max_batch) {
      break;
    }
    if (!sequence.is_prefilling()) {
      continue;
    }
    const std::uint32_t most = std::min(sequence.num_pending(), budget);
    const PlannedSlice slice{
        &sequence, is_bounded ? fitting_chunk(sequence, most, shape, limits, cost) : most};
    shape = plus(shape, shape_of_one(slice));
    slices.push_back(slice);
    // Where the target cut a chunk, nothing more fits.
    budget = slice.count < most ? 0 : budget - slice.count;
    if (is_bounded && cost.predict(shape) > limits.step_seconds) {
      break;
    }
  }
  return slices;
}

std::uint32_t largest_batch(const DecodeLimits& limits,
                            const StepCost& cost,
                            std::uint64_t context) {
  if (limits.step_seconds <= 0) {
    return limits.max_batch;
  }
  std::uint32_t batch = 1;
  while (batch < limits.max_batch &&
         cost.predict({.rows = batch + 1, .context = (batch + 1) * context}) <=
             limits.step_seconds) {
    ++batch;
  }
  return batch;
}

StepShape shape_of(std::span<const PlannedSlice> slices) {
  StepShape shape;
  for (const PlannedSlice& slice : slices) {
    const std::uint32_t first = slice.sequence->computed();
    const auto rows =
        static_cast<std::uint32_t>(slice.count + slice.drafts.size()) + slice.wanted_drafts;
    const bool samples = slice.count == slice.sequence->num_pending();
    const auto sampled = samples ? 1 + rows - slice.count : 0U;
    shape.rows += sampled;
    shape.prompt_rows += rows - sampled;
    shape.context += std::uint64_t{rows} * first + std::uint64_t{rows} * (rows + 1) / 2;
  }
  return shape;
}

StepPlan to_step_plan(std::span<const PlannedSlice> slices) {
  StepPlan plan;
  plan.slices.reserve(slices.size());
  for (const PlannedSlice& slice : slices) {
    plan.slices.push_back(slice.sequence->slice(slice.count, slice.drafts));
    plan.slices.back().wanted_drafts = slice.wanted_drafts;
    plan.slices.back().sequence = slice.number;
  }
  return plan;
}

}  // namespace baton::engine
