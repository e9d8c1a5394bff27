#include "prefill_node/pull_cost.h"

#include <algorithm>
#include <chrono>

namespace baton::prefill_node {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Duration to_duration(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

}  // namespace

Duration PullCost::compute_time(std::uint32_t tokens, double tokens_per_second) {
  return to_duration(tokens /
                     (tokens_per_second > 0 ? tokens_per_second : kGuessedTokensPerSecond));
}

Duration PullCost::limit(std::uint32_t tokens, double tokens_per_second) {
  return std::max(kLeastLimit, compute_time(tokens, tokens_per_second));
}

double PullCost::bytes_per_second(const NodeName& node, TimePoint now) const {
  const auto found = pairs_.find(node);
  const bool is_known = found != pairs_.end() && found->second.bytes_per_second > 0 &&
                        now - found->second.measured < kFresh;
  return is_known ? found->second.bytes_per_second : kGuessedBytesPerSecond;
}

bool PullCost::is_worth(const NodeName& node,
                        std::uint64_t bytes,
                        std::uint32_t tokens,
                        double tokens_per_second,
                        TimePoint now) const {
  if (const auto found = pairs_.find(node);
      found != pairs_.end() && now < found->second.held_off_until) {
    return false;
  }
  const double pull =
      seconds(kRoundTrip) + static_cast<double>(bytes) / bytes_per_second(node, now);
  return pull < seconds(compute_time(tokens, tokens_per_second));
}

void PullCost::succeeded(const NodeName& node, std::uint64_t bytes, Duration took, TimePoint now) {
  // A short pull is mostly round trip: at least a quarter of the time counts as transfer.
  const double moving = std::max({seconds(took) - seconds(kRoundTrip), seconds(took) / 4, 1e-6});
  const double rate = static_cast<double>(bytes) / moving;
  Pair& pair = pairs_[node];
  const bool is_fresh = pair.bytes_per_second > 0 && now - pair.measured < kFresh;
  pair.bytes_per_second = is_fresh ? 0.7 * pair.bytes_per_second + 0.3 * rate : rate;
  pair.measured = now;
}

void PullCost::failed(const NodeName& node, TimePoint now) {
  pairs_[node].held_off_until = now + kHoldOff;
}

}  // namespace baton::prefill_node
