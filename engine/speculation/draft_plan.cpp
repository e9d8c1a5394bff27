#include "engine/speculation/draft_plan.h"

namespace baton::engine {
namespace {

// Expected gain must exceed its cost by this much: costs are estimates.
constexpr double kMargin = 1.1;

}  // namespace

std::vector<std::uint32_t> plan_drafts(std::span<const DraftOffer> offers,
                                       std::size_t sequences,
                                       double step_seconds,
                                       double most_seconds) {
  std::vector<std::uint32_t> counts(offers.size(), 0);
  std::vector<double> chances(offers.size());  // that the next draft of an offer is right
  for (std::size_t i = 0; i < offers.size(); ++i) {
    chances[i] = offers[i].chance;
  }
  auto tokens = static_cast<double>(sequences);
  double seconds = step_seconds;
  for (std::uint32_t taken = 0; taken < kMaxStepDrafts; ++taken) {
    // The best rate first: once that one is not worth it, none is.
    std::size_t best = offers.size();
    for (std::size_t i = 0; i < offers.size(); ++i) {
      const bool left = counts[i] < offers[i].tokens && chances[i] > 0;
      if (left && (best == offers.size() ||
                   chances[i] * offers[best].row_seconds > chances[best] * offers[i].row_seconds)) {
        best = i;
      }
    }
    if (best == offers.size() ||
        (most_seconds > 0 && seconds + offers[best].row_seconds > most_seconds) ||
        chances[best] * seconds < kMargin * tokens * offers[best].row_seconds) {
      break;
    }
    ++counts[best];
    tokens += chances[best];
    seconds += offers[best].row_seconds;
    chances[best] *= offers[best].chance;
  }
  return counts;
}

}  // namespace baton::engine
