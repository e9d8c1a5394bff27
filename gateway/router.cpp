#include "gateway/router.h"

#include <algorithm>
#include <tuple>

namespace baton::gateway {
namespace {

bool may_serve(const NodeView& node, NodeRole role) {
  return node.role == role && !node.is_draining;
}

template <class T>
bool holds(std::span<const T> values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
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

// `avoiding`: what the request should avoid does not exist.
std::expected<Route, RouteMiss> choose(std::span<const NodeView> nodes,
                                       const RouteNeed& need,
                                       bool avoiding) {
  const auto is_candidate = [&](const NodeView& node, NodeRole role) {
    return may_serve(node, role) && !(avoiding && holds(need.avoid, node.handle)) &&
           (need.model_stamp == 0 || need.model_stamp == node.model_stamp);
  };
  const auto is_pair = [&](const NodeView& prefill, const NodeView& decode) {
    const NodePair pair{prefill.handle, decode.handle};
    return match(prefill, decode) && !holds(need.out, pair) &&
           !(avoiding && holds(need.avoid_pairs, pair));
  };
  const NodeView* best_decode = nullptr;
  const NodeView* best_prefill = nullptr;
  bool pair_exists = false;
  for (const NodeView& decode : nodes) {
    if (!is_candidate(decode, NodeRole::Decode)) {
      continue;
    }
    const NodeView* prefill = nullptr;
    bool prefill_exists = false;
    for (const NodeView& node : nodes) {
      if (!is_candidate(node, NodeRole::Prefill) || !is_pair(node, decode)) {
        continue;
      }
      prefill_exists = true;
      if (node.is_alive && !node.is_busy && node.credits_left > 0 &&
          (prefill == nullptr || prefill_cost(node) < prefill_cost(*prefill))) {
        prefill = &node;
      }
    }
    // A resumed request has grown: where nobody else can prefill it, its prompt alone decides.
    const std::uint32_t counted = prefill_exists ? need.context_tokens : need.prompt_tokens;
    const bool local = counted <= decode.local_prefill_max_tokens;
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

}  // namespace

std::expected<Route, RouteMiss> choose_route(std::span<const NodeView> nodes,
                                             const RouteNeed& need) {
  const auto route = choose(nodes, need, true);
  const bool avoids = !need.avoid.empty() || !need.avoid_pairs.empty();
  if (!route && route.error() == RouteMiss::NoPair && avoids) {
    return choose(nodes, need, false);
  }
  return route;
}

bool has_usable_pair(std::span<const NodeView> nodes, std::span<const NodePair> out) {
  for (const NodeView& decode : nodes) {
    if (!may_serve(decode, NodeRole::Decode)) {
      continue;
    }
    if (decode.local_prefill_max_tokens > 0) {
      return true;
    }
    for (const NodeView& node : nodes) {
      if (may_serve(node, NodeRole::Prefill) && match(node, decode) &&
          !holds(out, NodePair{node.handle, decode.handle})) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace baton::gateway
