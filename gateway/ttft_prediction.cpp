#include "gateway/ttft_prediction.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kForgetSeconds = 10;
constexpr double kEnoughSeconds = 0.25;  // of work begun, before its rate is believed
constexpr double kMissed = 0.05;         // share of first tokens that may come later than predicted
constexpr double kStep = 0.05;
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

}  // namespace

void TtftPrediction::on_begun(TimePoint now, std::uint64_t tokens, bool more_waits) {
  if (last_begun_) {
    const double passed = Seconds(now - *last_begun_).count();
    const double keep = std::exp(-passed / kForgetSeconds);
    begun_tokens_ = begun_tokens_ * keep + static_cast<double>(tokens);
    begun_seconds_ = begun_seconds_ * keep + passed;
  }
  last_begun_ = more_waits ? std::optional(now) : std::nullopt;
}

// The factor follows the ratio of what came to what was said without it, at its 95th percentile: a
// ratio does not depend on the factor, so that the two cannot swing each other up.
void TtftPrediction::on_first_token(const Answer& predicted, Duration took, Duration target) {
  if (predicted.unweighted * kPartOfTarget < target) {
    return;
  }
  const bool missed = Seconds(took) > Seconds(predicted.unweighted) * factor_;
  factor_ *= missed ? 1 + kStep * (1 - kMissed) : 1 - kStep * kMissed;
  factor_ = std::clamp(factor_, kLeastFactor, kMostFactor);
}

std::optional<TtftPrediction::Answer> TtftPrediction::predict(
    std::span<const NodeView> nodes,
    const std::array<std::uint64_t, kNumTiers>& waiting,
    const TierPolicies& tiers,
    Tier tier,
    std::uint32_t prompt_tokens) const {
  const Pool pool = pool_of(nodes);
  const double rate = begun_seconds_ >= kEnoughSeconds ? begun_tokens_ / begun_seconds_ : pool.rate;
  if (rate <= 0) {
    return std::nullopt;
  }
  const auto at = static_cast<std::size_t>(tier);
  double all = 0;
  double rest = 1;  // what the shares of those who wait leave
  bool is_highest = true;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    all += static_cast<double>(waiting[i]);
    if (waiting[i] > 0 || i == at) {
      rest -= tiers[i].share;
      is_highest &= i >= at;
    }
  }
  // Its part of the work lets it through those of its own tier; without new work of others
  // everything that waits is through after a while, too.
  const double part = tiers[at].share + (is_highest ? rest : 0);
  const double own_wait = part > 0 ? static_cast<double>(waiting[at]) / part : all;
  double wait = std::min(own_wait, all) / rate;
  double own = 0;
  if (pool.best_rate > 0) {
    wait += pool.best_wait;
    own = prompt_tokens / pool.best_rate;
  }
  return Answer{to_duration(wait * factor_), to_duration(own * factor_), to_duration(wait + own)};
}

}  // namespace baton::gateway
