// Chooses a prefill and a decode node for a request: a pure function of an immutable view.
//
// A pair must agree on numerics and have layouts that can be converted into each other; it needs a
// credit, both nodes alive and not busy. Of the pairs that are left a policy takes one: by default
// the one that costs the fewest seconds (routing/route_cost.h). Prompts up to a node's limit, or
// all of them where no prefill node exists, may be prefilled on the decode node itself.
//
// What a request should avoid, it avoids while there is anything else, even if that is taken now:
// first the nodes go back in, then the pairs, at last what breakers keep work away from. A pair
// that is out of routing is never taken.
//
// Thread: plain values and functions. Failure: RouteMiss says whether waiting can help.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "gateway/routing/node_view.h"

namespace baton::gateway {

class LinkSpeeds;

enum class RoutePolicy : std::uint8_t {
  Cost,       // the fewest seconds
  Prefix,     // a score of cached share, queue and memory, as other routers have it
  LeastLoad,  // decode by batch and memory, prefill by its queue; caches count for nothing
  Random,
};
// "cost", "prefix", "least_load"; anything else is random.
RoutePolicy route_policy_named(std::string_view name);

struct RouteNeed {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t context_tokens = 0;       // to be prefilled: prompt and what was generated before
  std::uint32_t total_tokens = 0;         // prompt and the most the answer may have
  std::uint64_t model_stamp = 0;          // only such nodes; 0: any
  std::span<const NodeHandle> avoid;      // nodes on which this request failed
  std::span<const NodePair> avoid_pairs;  // pairs between which it failed
  std::span<const NodePair> out;          // pairs that nobody may use
  // Pairs, and nodes (as `prefill`, whatever their role), that are used only where nothing else is.
  std::span<const NodePair> resting;

  RoutePolicy policy = RoutePolicy::Cost;
  // Leading tokens of the prompt that each node holds, in the order of the view; empty: none.
  std::span<const std::uint32_t> held_tokens;
  std::uint64_t affinity = 0;         // requests of one session have the same; 0: none
  std::uint64_t draw = 0;             // random bits; 0: of equals the first
  const LinkSpeeds* links = nullptr;  // null: nothing was measured
  double itl_tokens = 8;              // tokens of an answer for which a slower step is counted
  bool pulls = true;                  // prefill nodes take blocks that decode holds
};

struct Route {
  NodeHandle prefill{};  // zero: the decode node prefills itself
  NodeHandle decode{};
  std::uint32_t held_tokens = 0;  // of the prompt, by whoever prefills
  double prefill_s = 0;           // predicted, once it is begun
  bool is_local() const { return prefill == NodeHandle{}; }
};

enum class RouteMiss : std::uint8_t {
  NoPair,      // no two nodes could serve it, however long it waits
  NoCapacity,  // a pair exists; its credits or blocks are taken
};

// `nodes`: those of the request's model.
std::expected<Route, RouteMiss> choose_route(std::span<const NodeView> nodes,
                                             const RouteNeed& need);
// True when some pair could serve some request, now or after others have finished.
bool has_usable_pair(std::span<const NodeView> nodes, std::span<const NodePair> out = {});

}  // namespace baton::gateway
