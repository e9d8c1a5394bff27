#include "gateway/router.h"

#include <algorithm>
#include <tuple>

namespace baton::gateway {
namespace {

bool may_serve(const NodeView& node, NodeRole role) {
  return node.role == role && !node.is_draining;
}

bool is_avoided(const NodeView& node, const RouteNeed& need) {
  return std::find(need.avoid.begin(), need.avoid.end(), node.handle) != need.avoid.end();
}

bool match(const NodeView& a, const NodeView& b) {
  return is_convertible(a.layout, b.layout) && a.numerics_hash == b.numerics_hash;
}

// Lower is better: room for the request first, then the share of the batch taken, then memory.
auto decode_cost(const NodeView& node, const RouteNeed& need) {
  const std::uint32_t blocks = need.total_tokens / std::max(1U, node.block_tokens) + 1;
  const double taken = static_cast<double>(node.running + node.open_reserves) /
                       std::max<std::uint32_t>(1, node.max_batch);
  return std::tuple(node.blocks_free < blocks, taken, ~node.blocks_free, node.handle);
}

// Seconds until a request given now would be begun, by the node's own rate.
auto prefill_cost(const NodeView& node) {
  constexpr double kUnmeasuredRate = 1000;
  const double rate = node.prefill_tokens_per_s > 0 ? node.prefill_tokens_per_s : kUnmeasuredRate;
  return std::tuple(
      static_cast<double>(node.queued_tokens) / rate, ~node.credits_left, node.handle);
}

}  // namespace

std::expected<Route, RouteMiss> choose_route(std::span<const NodeView> nodes,
                                             const RouteNeed& need) {
  const NodeView* best_decode = nullptr;
  const NodeView* best_prefill = nullptr;
  bool pair_exists = false;
  for (const NodeView& decode : nodes) {
    if (!may_serve(decode, NodeRole::Decode) || is_avoided(decode, need)) {
      continue;
    }
    const bool local = need.prompt_tokens <= decode.local_prefill_max_tokens;
    const NodeView* prefill = nullptr;
    bool prefill_exists = false;
    for (const NodeView& node : nodes) {
      if (!may_serve(node, NodeRole::Prefill) || is_avoided(node, need) || !match(node, decode)) {
        continue;
      }
      prefill_exists = true;
      if (node.is_alive && !node.is_busy && node.credits_left > 0 &&
          (prefill == nullptr || prefill_cost(node) < prefill_cost(*prefill))) {
        prefill = &node;
      }
    }
    pair_exists |= local || prefill_exists;
    const bool ready = decode.is_alive && !decode.is_busy &&
                       decode.open_reserves < kMaxOpenReserves && (local || prefill != nullptr);
    if (ready &&
        (best_decode == nullptr || decode_cost(decode, need) < decode_cost(*best_decode, need))) {
      best_decode = &decode;
      best_prefill = local ? nullptr : prefill;
    }
  }
  if (best_decode == nullptr) {
    return std::unexpected(pair_exists ? RouteMiss::NoCapacity : RouteMiss::NoPair);
  }
  return Route{best_prefill == nullptr ? NodeHandle{} : best_prefill->handle, best_decode->handle};
}

bool has_usable_pair(std::span<const NodeView> nodes) {
  for (const NodeView& decode : nodes) {
    if (!may_serve(decode, NodeRole::Decode)) {
      continue;
    }
    if (decode.local_prefill_max_tokens > 0) {
      return true;
    }
    for (const NodeView& node : nodes) {
      if (may_serve(node, NodeRole::Prefill) && match(node, decode)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace baton::gateway
