// Chooses what the next step computes. Pure code: the same sequences give the same plan. By the
// design no result depends on the choice; only the time does.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "engine/step/sequence.h"

namespace baton::engine {

struct PlannedSlice {
  Sequence* sequence = nullptr;
  std::uint32_t count = 0;  // of its pending tokens
};

struct PrefillLimits {
  std::uint32_t chunk_tokens = 512;  // of one sequence in one step
  std::uint32_t step_tokens = 1024;  // of all sequences in one step
};

// The oldest sequences first, each up to its chunk, until the step is full.
std::vector<PlannedSlice> plan_prefill(std::span<Sequence* const> oldest_first,
                                       const PrefillLimits& limits);

struct DecodeLimits {
  std::uint32_t max_batch = 32;        // sequences in a step
  std::uint32_t prefill_tokens = 128;  // prompt tokens in a step, of sequences prefilled here
};

// Every decoding sequence gives its one token, then prefilling ones share `prefill_tokens`; all in
// the order given, up to max_batch. So a long prompt cannot hold up running sequences for more than
// one bounded chunk a step.
std::vector<PlannedSlice> plan_decode(std::span<Sequence* const> oldest_first,
                                      const DecodeLimits& limits);

// What the runner takes. Borrows from the sequences.
StepPlan to_step_plan(std::span<const PlannedSlice> slices);

}  // namespace baton::engine
