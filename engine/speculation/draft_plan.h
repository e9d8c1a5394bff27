// Decides how many drafts of each sequence a step carries. A draft is worth its row when it brings
// tokens at a better rate than the step does without it: its chance of being right, over the time
// its row takes, against all expected tokens over the whole step's time. So a lone stream, whose
// step is all fixed cost, drafts much; a batch large enough to be bound by its rows drafts nothing.
//
// Thread: a plain function; pure. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// What one sequence could draft.
struct DraftOffer {
  std::uint32_t tokens = 0;  // guessed
  double chance = 0;         // that one is right when those before it are
  double row_seconds = 0;    // that one more row of it takes
};

// Most drafts of all sequences in one step; sizes buffers.
constexpr std::uint32_t kMaxStepDrafts = 64;

// `sequences`: that get a token in the step anyway, which takes `step_seconds` without drafts.
// Gives the drafts of each offer. Where time is not known, all are worth it. Drafts never make a
// step longer than `most_seconds`; 0: no limit.
std::vector<std::uint32_t> plan_drafts(std::span<const DraftOffer> offers,
                                       std::size_t sequences,
                                       double step_seconds,
                                       double most_seconds = 0);

}  // namespace baton::engine
