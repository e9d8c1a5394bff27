// When will the first token of a request come that is received now? The work that waits before it,
// over the rate at which work is really begun, then the prefill nodes' own queues and the prompt
// itself at the rate they report. What other tiers will bring meanwhile takes its part of that rate
// as it lately did. All this is known too little for a promise, so a factor is learned for each
// tier from what came true: 19 of 20 first tokens come no later than predicted.
//
// One of these serves one model. Owner: RequestTracker. Thread: the control strand; a pure function
// of what it was told, without a clock. Failure: nothing is predicted before something is known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "gateway/requests/admission.h"
#include "gateway/routing/router.h"

namespace baton::gateway {

class TtftPrediction {
 public:
  struct Answer {
    Duration wait{};        // before its own prompt is computed
    Duration own{};         // the prompt
    Duration unweighted{};  // both, without the learned factor
    Duration total() const { return wait + own; }
  };

  // Work of `tokens` came into the queue.
  void on_entered(TimePoint now, Tier tier, std::uint64_t tokens);
  // Work of `tokens` was given to nodes. `more_waits`: the queue was not empty then.
  void on_begun(TimePoint now, std::uint64_t tokens, bool more_waits);
  // The first token of a request that had to come within `target`, for which `predicted` was said.
  void on_first_token(Tier tier, const Answer& predicted, Duration took, Duration target);

  // `waiting`: tokens by tier. `tier`, `prompt_tokens`: of the request in question.
  std::optional<Answer> predict(std::span<const NodeView> nodes,
                                const std::array<std::uint64_t, kNumTiers>& waiting,
                                const TierPolicies& tiers,
                                Tier tier,
                                std::uint32_t prompt_tokens) const;

  double factor(Tier tier) const { return factors_[static_cast<std::size_t>(tier)]; }

 private:
  // Tokens a second that came lately, by tier.
  std::array<double, kNumTiers> demand() const;

  // Work begun while something waited, newest counting most.
  double begun_tokens_ = 0;
  double begun_seconds_ = 0;
  std::optional<TimePoint> last_begun_;  // with something still waiting then
  // Work that came in, likewise.
  std::array<double, kNumTiers> entered_tokens_{};
  double entered_seconds_ = 0;
  std::optional<TimePoint> last_entered_;
  std::array<double, kNumTiers> factors_{1, 1, 1};
};

}  // namespace baton::gateway
