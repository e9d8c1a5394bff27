#include "gateway/requests/ttft_prediction.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kForgetSeconds = 10;
constexpr double kEnoughSeconds = 0.25;  // of work begun, before its rate is believed
constexpr double kBurstSeconds = 2;      // what came within less is no rate
constexpr double kNewest = 1.0 / 16;     // part of an average
constexpr double kLeastRest = 0.01;      // of the rate, after what others bring
constexpr double kMissed = 0.01;         // share of first tokens that may come later than predicted
constexpr double kStep = 0.1;
constexpr double kLeastFactor = 0.5;
constexpr double kMostFactor = 8;
constexpr int kPartOfTarget = 4;  // shorter predictions say little about those near the deadline

Duration to_duration(double seconds) {
  constexpr double kLongest = 86'400;
  return std::chrono::duration_cast<Duration>(Seconds(std::min(seconds, kLongest)));
}

// What the prefill nodes say of themselves.
struct Pool {
  double rate = 0;           // of all, tokens a second
  double best_rate = 0;      // of the one that would be taken
  double best_wait = 1e300;  // seconds
};

Pool pool_of(std::span<const NodeView> nodes) {
  Pool pool;
  for (const NodeView& node : nodes) {
    if (node.role != NodeRole::Prefill || node.is_draining || !node.is_alive ||
        node.prefill_tokens_per_s <= 0) {
      continue;
    }
    const double rate = node.prefill_tokens_per_s;
    const double wait = static_cast<double>(node.queued_tokens) / rate;
    pool.rate += rate;
    if (wait < pool.best_wait) {
      pool.best_wait = wait;
      pool.best_rate = rate;
    }
  }
  return pool;
}

// A prompt at that rate, or as long as `lately`.
double own_seconds(const Pool& pool, std::uint32_t prompt_tokens, double lately) {
  return pool.best_rate > 0 ? prompt_tokens / pool.best_rate : lately;
}

}  // namespace

Duration TtftPrediction::Answer::weighted_wait() const {
  return to_duration(Seconds(wait).count() * factor);
}

Duration TtftPrediction::Answer::total() const {
  return to_duration(Seconds(unweighted()).count() * factor);
}

void TtftPrediction::on_offered(TimePoint now, Tier tier, std::uint64_t tokens) {
  if (last_offered_) {
    const double passed = Seconds(now - *last_offered_).count();
    const double keep = std::exp(-passed / kForgetSeconds);
    for (double& offered : offered_tokens_) {
      offered *= keep;
    }
    offered_seconds_ = offered_seconds_ * keep + passed;
  }
  last_offered_ = now;
  offered_tokens_[static_cast<std::size_t>(tier)] += static_cast<double>(tokens);
}

std::array<double, kNumTiers> TtftPrediction::demand() const {
  std::array<double, kNumTiers> rates = offered_tokens_;
  for (double& rate : rates) {
    rate /= std::max(offered_seconds_, kBurstSeconds);
  }
  return rates;
}

TtftPrediction::Begun TtftPrediction::on_begun(TimePoint now,
                                               std::uint64_t tokens,
                                               bool more_waits) {
  const Begun begun{now, tokens, last_begun_.has_value()};
  if (last_begun_) {
    const double passed = Seconds(now - *last_begun_).count();
    const double keep = std::exp(-passed / kForgetSeconds);
    begun_tokens_ = begun_tokens_ * keep + static_cast<double>(tokens);
    begun_requests_ = begun_requests_ * keep + 1;
    begun_seconds_ = begun_seconds_ * keep + passed;
  }
  last_begun_ = more_waits ? std::optional(now) : std::nullopt;
  return begun;
}

// As if it had never been begun: a refusal comes so soon that nothing of it is forgotten by then.
void TtftPrediction::on_refused(const Begun& begun) {
  if (begun.counts) {
    begun_tokens_ = std::max(0.0, begun_tokens_ - static_cast<double>(begun.tokens));
    begun_requests_ = std::max(0.0, begun_requests_ - 1);
    last_begun_ = std::max(begun.at, last_begun_.value_or(begun.at));
  } else if (last_begun_ == begun.at) {
    last_begun_.reset();
  }
}

void TtftPrediction::on_first_token(Tier tier,
                                    const Answer& predicted,
                                    Duration took,
                                    Duration target) {
  if (predicted.total() * kPartOfTarget >= target) {
    learn(tier, Seconds(took) > Seconds(predicted.unweighted()) * factor(tier));
  }
}

void TtftPrediction::on_computed(Duration took) {
  const double seconds = Seconds(took).count();
  computed_seconds_ += computed_seconds_ > 0 ? (seconds - computed_seconds_) * kNewest : seconds;
}

// Its first token would have come later than `target`: that says something only where such a wait
// is not expected by now.
void TtftPrediction::on_expired(Tier tier, const Answer& predicted, Duration target) {
  if (predicted.total() * kPartOfTarget >= target &&
      Seconds(predicted.unweighted()) * factor(tier) < Seconds(target)) {
    learn(tier, true);
  }
}

// A tier's factor follows the ratio of what came to what was said without it, at its 99th
// percentile: a ratio does not depend on the factor, so that the two cannot swing each other up.
void TtftPrediction::learn(Tier tier, bool was_missed) {
  double& factor = factors_[static_cast<std::size_t>(tier)];
  factor *= was_missed ? 1 + kStep * (1 - kMissed) : 1 - kStep * kMissed;
  factor = std::clamp(factor, kLeastFactor, kMostFactor);
}

double TtftPrediction::wait_behind(const Backlog& backlog,
                                   const TierPolicies& tiers,
                                   std::size_t tier,
                                   double rate) const {
  const std::array<double, kNumTiers> demand = this->demand();
  const TierBacklog& own = backlog[tier];
  const TierPolicy& policy = tiers[tier];
  auto work = static_cast<double>(own.tokens);
  // Higher tiers are first with what waits and what comes, lower ones up to their shares.
  double left = 1;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    if (i < tier) {
      work += static_cast<double>(backlog[i].tokens);
      left -= demand[i] / rate;
    } else if (i > tier) {
      left -= backlog[i].tokens > 0 ? tiers[i].share : std::min(tiers[i].share, demand[i] / rate);
    }
  }
  double wait = work / (std::max(left, kLeastRest) * rate);
  // Whatever others bring, it is begun when its tier has earned the work before it …
  if (policy.share > 0) {
    wait = std::min(
        wait, std::max(0.0, static_cast<double>(own.tokens) - own.owed) / (policy.share * rate));
  }
  // … or when its turn has come so often. On slow nodes all tiers starve, and take turns.
  const double gap = begun_requests_ > 0 ? begun_seconds_ / begun_requests_ : 0;
  const double turn = std::max(Seconds(policy.starve_after).count(), gap * kNumTiers);
  const double turns = static_cast<double>(own.requests + 1) * turn;
  return std::min(wait, std::max(0.0, turns - Seconds(own.since_begun).count()));
}

std::optional<TtftPrediction::Answer> TtftPrediction::predict(std::span<const NodeView> nodes,
                                                              const Backlog& backlog,
                                                              const TierPolicies& tiers,
                                                              Tier tier,
                                                              std::uint32_t prompt_tokens) const {
  const Pool pool = pool_of(nodes);
  const double rate = begun_seconds_ >= kEnoughSeconds ? begun_tokens_ / begun_seconds_ : pool.rate;
  if (rate <= 0) {
    return std::nullopt;
  }
  const double wait = wait_behind(backlog, tiers, static_cast<std::size_t>(tier), rate) +
                      (pool.best_rate > 0 ? pool.best_wait : 0);
  const double own = own_seconds(pool, prompt_tokens, computed_seconds_);
  return Answer{to_duration(wait), to_duration(own), factor(tier)};
}

Duration TtftPrediction::needed(std::span<const NodeView> nodes,
                                Tier tier,
                                std::uint32_t prompt_tokens) const {
  return to_duration(own_seconds(pool_of(nodes), prompt_tokens, computed_seconds_) *
                     std::min(factor(tier), kFirstFactor));
}

}  // namespace baton::gateway
