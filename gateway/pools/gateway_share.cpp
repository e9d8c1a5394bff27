#include "gateway/pools/gateway_share.h"

#include <algorithm>
#include <cmath>

#include "gateway/pools/trend.h"

namespace baton::gateway {
namespace {

// Fewer say nothing of a share.
constexpr double kLeastTaken = 20;
constexpr double kLeastShare = 0.01;
constexpr double kKept = 1 - 1 / Trend::kLong;  // from one interval to the next

std::uint32_t times(std::uint32_t count, double factor) {
  return static_cast<std::uint32_t>(std::lround(count * factor));
}

}  // namespace

void GatewayShare::observe(NodeHandle node, std::uint64_t taken, std::uint64_t given) {
  const auto [entry, is_first] = nodes_.try_emplace(node);
  Counts& known = entry->second;
  if (!is_first && taken >= known.taken && given >= known.given) {
    taken_ += static_cast<double>(taken - known.taken);
    given_ += static_cast<double>(given - known.given);
  }
  known = {taken, given, true};
}

void GatewayShare::end_interval() {
  std::erase_if(nodes_, [](const auto& entry) { return !entry.second.is_there; });
  for (auto& [node, known] : nodes_) {
    known.is_there = false;
  }
  taken_ *= kKept;
  given_ *= kKept;
}

double GatewayShare::get() const {
  return taken_ < kLeastTaken ? 1 : std::clamp(given_ / taken_, kLeastShare, 1.0);
}

void GatewayShare::scale(PoolObservation& seen) const {
  const double factor = 1 / get();
  seen.stands_for = factor;
  seen.requests = times(seen.requests, factor);
  seen.prompt_tokens *= factor;
  seen.prompt_tokens_squared *= factor;
  seen.ended = times(seen.ended, factor);
  seen.ended_prompt_tokens *= factor;
  seen.cached_tokens *= factor;
  seen.output_tokens *= factor;
  seen.waiting = times(seen.waiting, factor);
  seen.waiting_prompt_tokens *= factor;
}

}  // namespace baton::gateway
