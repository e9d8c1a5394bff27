// When will the first token of a request come that is received now? It waits behind its own tier at
// the rate that the queue's rules leave this one: what the higher ones do not take, but at least
// its share, and a turn each time it would starve. Of these the quickest counts; then come the
// prefill nodes' own queues and the prompt itself, at the rate they report or as it lately took.
// The rate of all is that at which work is really begun. What others will bring meanwhile is what
// clients lately offered, let in or not: who is turned away shows that there is more.
//
// All this is known too little for a promise: nodes take work in bursts, and rates change. So a
// factor is learned for each tier from what came true: 99 of 100 first tokens come no later than
// predicted with it, those included that were given up because they would have come too late.
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
    Duration wait{};    // before its own prompt is computed, if all goes evenly
    Duration own{};     // the prompt, likewise
    double factor = 1;  // for what does not
    Duration unweighted() const { return wait + own; }
    Duration weighted_wait() const;
    Duration total() const;  // with the factor
  };

  // Work of `tokens` came, whether it was let in or not.
  void on_offered(TimePoint now, Tier tier, std::uint64_t tokens);
  // Work of `tokens` was given to nodes. `more_waits`: the queue was not empty then.
  struct Begun {
    TimePoint at{};
    std::uint64_t tokens = 0;
    bool counts = false;  // something had waited before it
  };
  Begun on_begun(TimePoint now, std::uint64_t tokens, bool more_waits);
  // The nodes did not take it, and it waits again: a full one refuses many for each that it takes.
  void on_refused(const Begun& begun);
  // The first token of a request that had to come within `target`, for which `predicted` was said.
  void on_first_token(Tier tier, const Answer& predicted, Duration took, Duration target);
  // Any first token, so long after the request was given to nodes.
  void on_computed(Duration took);
  // It waited until that could no longer be.
  void on_expired(Tier tier, const Answer& predicted, Duration target);

  // `tier`, `prompt_tokens`: of the request in question, which is not in the backlog.
  std::optional<Answer> predict(std::span<const NodeView> nodes,
                                const Backlog& backlog,
                                const TierPolicies& tiers,
                                Tier tier,
                                std::uint32_t prompt_tokens) const;
  // So long before its deadline it must be given to nodes, so that it can be in time.
  Duration needed(std::span<const NodeView> nodes, Tier tier, std::uint32_t prompt_tokens) const;

  double factor(Tier tier) const { return factors_[static_cast<std::size_t>(tier)]; }

 private:
  // Tokens a second that were offered lately, by tier.
  std::array<double, kNumTiers> demand() const;
  // Seconds behind the backlog, `rate` tokens a second being begun.
  double wait_behind(const Backlog& backlog,
                     const TierPolicies& tiers,
                     std::size_t tier,
                     double rate) const;
  void learn(Tier tier, bool was_missed);

  // Work begun while something waited, newest counting most.
  double begun_tokens_ = 0;
  double begun_requests_ = 0;
  double begun_seconds_ = 0;
  std::optional<TimePoint> last_begun_;  // with something still waiting then
  // Work that was offered, likewise.
  std::array<double, kNumTiers> offered_tokens_{};
  double offered_seconds_ = 0;
  std::optional<TimePoint> last_offered_;
  double computed_seconds_ = 0;  // from nodes to the first token, as lately; 0: there was none
  // Careful until more is known.
  static constexpr double kFirstFactor = 1.25;
  std::array<double, kNumTiers> factors_{kFirstFactor, kFirstFactor, kFirstFactor};
};

}  // namespace baton::gateway
