#include "gateway/routing/link_speeds.h"

#include <algorithm>

namespace baton::gateway {
namespace {

// Shorter ones are mostly round trips.
constexpr std::uint64_t kLeastBytes = 64U << 10U;
// Of the newest, which only says "not slower than this".
constexpr double kSlowerWeight = 0.02;

}  // namespace

void LinkSpeeds::observe(const NodePair& pair,
                         std::uint64_t bytes,
                         double exposed_s,
                         double compute_s) {
  if (bytes < kLeastBytes) {
    return;
  }
  const double bound = (exposed_s + compute_s) / static_cast<double>(bytes);
  const auto [at, is_new] = pairs_.emplace(pair, bound);
  if (!is_new) {
    at->second = std::min(bound, at->second + kSlowerWeight * (bound - at->second));
  }
}

void LinkSpeeds::forget(NodeHandle node) {
  std::erase_if(pairs_, [node](const auto& entry) {
    return entry.first.prefill == node || entry.first.decode == node;
  });
}

double LinkSpeeds::seconds_per_byte(const NodePair& pair) const {
  const auto found = pairs_.find(pair);
  return found == pairs_.end() ? kUnmeasured : found->second;
}

}  // namespace baton::gateway
