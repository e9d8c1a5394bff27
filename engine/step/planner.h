// Chooses what the next step computes. Pure code: the same sequences give the same plan. By the
// design no result depends on the choice; only the time does.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exec/executor.h"
#include "engine/runner.h"
#include "engine/step/sequence.h"
#include "engine/step/step_cost.h"

namespace baton::engine {

struct PlannedSlice {
  Sequence* sequence = nullptr;
  std::uint32_t count = 0;               // of its pending tokens
  std::span<const TokenId> drafts = {};  // guesses of what follows them; must outlive the step
  std::uint32_t wanted_drafts = 0;       // guesses that a draft model is asked for
  std::uint64_t number = 0;              // of the sequence on this node, for the draft model
};

struct PrefillWish {
  Sequence* sequence = nullptr;
  TimePoint arrived{};
  TimePoint deadline{};
};

// The earliest deadline first, then the oldest; before them those that have waited for `patience`,
// the oldest first, so that nobody is overtaken for longer.
std::vector<Sequence*> by_urgency(std::span<const PrefillWish> oldest_first,
                                  TimePoint now,
                                  Duration patience);

struct PrefillLimits {
  std::uint32_t chunk_tokens = 512;  // of one sequence in one step
  std::uint32_t step_tokens = 1024;  // of all sequences in one step
};

// In the order given, each up to its chunk, until the step is full. A quarter of the step is kept
// for prompts that end within it, wherever they stand: a short one does not wait for the chunks of
// long ones before it, and these lose no more than that quarter.
std::vector<PlannedSlice> plan_prefill(std::span<Sequence* const> most_urgent_first,
                                       const PrefillLimits& limits);

struct DecodeLimits {
  std::uint32_t max_batch = 32;        // sequences in a step
  std::uint32_t prefill_tokens = 128;  // prompt tokens in a step, of sequences prefilled here
  double step_seconds = 0;             // that a step should take at most; 0: no target
};

// Prompt tokens that a step may carry however long it takes, so that every prompt ends.
constexpr std::uint32_t kLeastPrefill = 16;

struct DecodeWish {
  Sequence* sequence = nullptr;
  std::uint64_t last_turn = 0;  // unlike any other's; the later it was in a step, the higher
};

// Every decoding sequence gives its one token, then prefilling ones share `prefill_tokens`, the
// oldest first; up to max_batch. So a long prompt cannot hold up running sequences for more than
// one bounded chunk a step.
//
// With a target, a step takes as many sequences as `cost` says will meet it, those first that were
// longest in none, and as large a chunk as then fits, but at least one sequence and kLeastPrefill.
std::vector<PlannedSlice> plan_decode(std::span<const DecodeWish> oldest_first,
                                      const DecodeLimits& limits,
                                      const StepCost& cost);

// Sequences of `context` tokens that one step can take within its limits; at least one.
std::uint32_t largest_batch(const DecodeLimits& limits,
                            const StepCost& cost,
                            std::uint64_t context);

// What the step's time depends on.
StepShape shape_of(std::span<const PlannedSlice> slices);

// What the runner takes. Borrows from the sequences.
StepPlan to_step_plan(std::span<const PlannedSlice> slices);

}  // namespace baton::engine
