#include "gateway/requests/ttft_prediction.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kForgetSeconds = 10;
constexpr double kEnoughSeconds = 0.25;  // of work begun, before its rate is believed
constexpr double kBurstSeconds = 2;      // what came within less is no rate
constexpr double kActive = 0.5;          // a tier that lately brought this part of its share, will
constexpr double kLeastRest = 0.01;      // of the rate, after what others bring
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

void TtftPrediction::on_entered(TimePoint now, Tier tier, std::uint64_t tokens) {
  if (last_entered_) {
    const double passed = Seconds(now - *last_entered_).count();
    const double keep = std::exp(-passed / kForgetSeconds);
    for (double& entered : entered_tokens_) {
      entered *= keep;
    }
    entered_seconds_ = entered_seconds_ * keep + passed;
  }
  last_entered_ = now;
  entered_tokens_[static_cast<std::size_t>(tier)] += static_cast<double>(tokens);
}

std::array<double, kNumTiers> TtftPrediction::demand() const {
  std::array<double, kNumTiers> rates = entered_tokens_;
  for (double& rate : rates) {
    rate /= std::max(entered_seconds_, kBurstSeconds);
  }
  return rates;
}

void TtftPrediction::on_begun(TimePoint now, std::uint64_t tokens, bool more_waits) {
  if (last_begun_) {
    const double passed = Seconds(now - *last_begun_).count();
    const double keep = std::exp(-passed / kForgetSeconds);
    begun_tokens_ = begun_tokens_ * keep + static_cast<double>(tokens);
    begun_seconds_ = begun_seconds_ * keep + passed;
  }
  last_begun_ = more_waits ? std::optional(now) : std::nullopt;
}

// A tier's factor follows the ratio of what came to what was said without it, at its 95th
// percentile: a ratio does not depend on the factor, so that the two cannot swing each other up.
void TtftPrediction::on_first_token(Tier tier,
                                    const Answer& predicted,
                                    Duration took,
                                    Duration target) {
  if (predicted.unweighted * kPartOfTarget < target) {
    return;
  }
  double& factor = factors_[static_cast<std::size_t>(tier)];
  const bool missed = Seconds(took) > Seconds(predicted.unweighted) * factor;
  factor *= missed ? 1 + kStep * (1 - kMissed) : 1 - kStep * kMissed;
  factor = std::clamp(factor, kLeastFactor, kMostFactor);
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
  const std::array<double, kNumTiers> demand = this->demand();
  double all = 0;
  double rest = 1;    // what the shares of those who wait leave
  double others = 0;  // of the rate, by work that is still to come
  bool is_highest = true;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    all += static_cast<double>(waiting[i]);
    if (waiting[i] > 0 || i == at || demand[i] > kActive * tiers[i].share * rate) {
      rest -= tiers[i].share;
      is_highest &= i >= at;
    }
    others += i == at ? 0 : demand[i] / rate;
  }
  // Its part of the work lets it through those of its own tier; and everything that waits is
  // through after a while, too, at what new work of others leaves of the rate.
  const double part = tiers[at].share + (is_highest ? rest : 0);
  const double all_wait = all / std::max(1 - others, kLeastRest);
  const double own_wait = part > 0 ? static_cast<double>(waiting[at]) / part : all_wait;
  double wait = std::min(own_wait, all_wait) / rate;
  double own = 0;
  if (pool.best_rate > 0) {
    wait += pool.best_wait;
    own = prompt_tokens / pool.best_rate;
  }
  const double factor = factors_[at];
  return Answer{to_duration(wait * factor), to_duration(own * factor), to_duration(wait + own)};
}

}  // namespace baton::gateway
