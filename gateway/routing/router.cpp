#include "gateway/routing/router.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "gateway/routing/route_cost.h"

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

// ---- the pairs that may be taken

constexpr std::uint32_t kLocal = std::numeric_limits<std::uint32_t>::max();

// Indices into the view.
struct Candidate {
  std::uint32_t prefill = kLocal;
  std::uint32_t decode = 0;
};

struct Candidates {
  std::vector<Candidate> ready;
  bool pair_exists = false;  // perhaps none that is ready
};

// What is left out although it is there; each step leaves out less.
enum class Choosy : std::uint8_t { Nodes, Pairs, Resting, Nothing };

Candidates candidates(std::span<const NodeView> nodes, const RouteNeed& need, Choosy choosy) {
  const auto rests = [&](NodeHandle one, NodeHandle other) {
    return choosy <= Choosy::Resting && holds(need.resting, NodePair{one, other});
  };
  const auto is_candidate = [&](const NodeView& node, NodeRole role) {
    return may_serve(node, role) && !rests(node.handle, NodeHandle{}) &&
           !(choosy <= Choosy::Nodes && holds(need.avoid, node.handle)) &&
           (need.model_stamp == 0 || need.model_stamp == node.model_stamp);
  };
  const auto is_pair = [&](const NodeView& prefill, const NodeView& decode) {
    const NodePair pair{prefill.handle, decode.handle};
    return match(prefill, decode) && !holds(need.out, pair) && !rests(pair.prefill, pair.decode) &&
           !(choosy <= Choosy::Pairs && holds(need.avoid_pairs, pair));
  };
  Candidates all;
  for (std::uint32_t d = 0; d < nodes.size(); ++d) {
    const NodeView& decode = nodes[d];
    if (!is_candidate(decode, NodeRole::Decode)) {
      continue;
    }
    const bool decode_ready = decode.is_alive && !decode.is_busy;
    const std::size_t before = all.ready.size();
    bool prefill_exists = false;
    for (std::uint32_t p = 0; p < nodes.size(); ++p) {
      const NodeView& prefill = nodes[p];
      if (!is_candidate(prefill, NodeRole::Prefill) || !is_pair(prefill, decode)) {
        continue;
      }
      prefill_exists = true;
      if (decode_ready && prefill.is_alive && !prefill.is_busy && prefill.credits_left > 0) {
        all.ready.push_back({p, d});
      }
    }
    // A resumed request has grown: where nobody else can prefill it, its prompt alone decides.
    const std::uint32_t counted = prefill_exists ? need.context_tokens : need.prompt_tokens;
    const bool local = counted <= decode.local_prefill_max_tokens;
    all.pair_exists |= local || prefill_exists;
    if (local && decode_ready) {
      if (need.policy != RoutePolicy::Cost) {
        all.ready.resize(before);  // these do not weigh one against the other
      }
      all.ready.push_back({kLocal, d});
    }
  }
  return all;
}

// ---- the policies: each takes one of at least one candidate

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t bits = (a ^ (b * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  bits = (bits ^ (bits >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return bits ^ (bits >> 33U);
}

// Lower is better: room for the request first, then the share of the batch taken, then memory.
auto decode_load(const NodeView& node, const RouteNeed& need) {
  const double taken =
      static_cast<double>(node.running) / std::max<std::uint32_t>(1, node.max_batch);
  return std::tuple(!has_room(node, need), taken, ~node.blocks_free, node.handle);
}

Candidate least_load(std::span<const NodeView> nodes,
                     const RouteNeed& need,
                     std::span<const Candidate> ready) {
  const RouteCost cost(nodes, need);
  const auto load = [&](const Candidate& candidate) {
    const bool local = candidate.prefill == kLocal;
    return std::tuple(decode_load(nodes[candidate.decode], need),
                      local ? 0.0 : cost.queue_seconds(candidate.prefill),
                      local ? 0U : ~nodes[candidate.prefill].credits_left,
                      local ? NodeHandle{} : nodes[candidate.prefill].handle);
  };
  return *std::ranges::min_element(ready, {}, load);
}

// The weighted sum that routers of Kubernetes gateways take by default: cached share 3, queue 2,
// memory 2; on both sides.
Candidate best_score(std::span<const NodeView> nodes,
                     const RouteNeed& need,
                     std::span<const Candidate> ready) {
  constexpr double kTie = 1e-9;
  const RouteCost cost(nodes, need);
  double longest = 0;
  for (const Candidate& candidate : ready) {
    if (candidate.prefill != kLocal) {
      longest = std::max(longest, static_cast<double>(nodes[candidate.prefill].queued_tokens));
    }
  }
  const auto cached = [&](std::size_t node) {
    return 3.0 * cost.held(node) / std::max(1U, need.context_tokens);
  };
  const auto score = [&](const Candidate& candidate) {
    const NodeView& decode = nodes[candidate.decode];
    const double batch = std::max<std::uint32_t>(1, decode.max_batch);
    double sum = has_room(decode, need) ? 0 : -100;
    // Equal ones are drawn from.
    sum += kTie *
           static_cast<double>(mixed(need.draw, mixed(candidate.prefill, candidate.decode)) >> 44U);
    sum += cached(candidate.decode) - 2.0 * decode.running / batch;
    sum += decode.blocks_total == 0 ? 0 : 2.0 * decode.blocks_free / decode.blocks_total;
    if (candidate.prefill != kLocal) {
      const auto queued = static_cast<double>(nodes[candidate.prefill].queued_tokens);
      sum += cached(candidate.prefill) - (longest > 0 ? 2.0 * queued / longest : 0);
    }
    return sum;
  };
  return *std::ranges::max_element(ready, {}, score);
}

// The cheapest. Of those that hold as much of the prompt and cost about as much, a session has its
// own order; others take the cheaper of two drawn, so that several gateways with one view do not
// all choose the same.
class CheapestRoute {
 public:
  CheapestRoute(std::span<const NodeView> nodes,
                const RouteNeed& need,
                std::span<const Candidate> ready)
      : nodes_(nodes), need_(need), cost_(nodes, need) {
    priced_.reserve(ready.size());
    for (const Candidate& candidate : ready) {
      const double seconds = candidate.prefill == kLocal
                                 ? cost_.local(candidate.decode)
                                 : cost_.remote(candidate.prefill, candidate.decode);
      priced_.push_back({!has_room(nodes[candidate.decode], need), seconds, candidate});
    }
  }

  Candidate take() {
    const Priced best = *std::ranges::min_element(priced_, {}, [this](const Priced& priced) {
      return std::tuple(priced.lacks_room,
                        priced.seconds,
                        nodes_[priced.candidate.decode].handle,
                        prefill_handle(priced.candidate));
    });
    if (need_.affinity == 0 && need_.draw == 0) {
      return best.candidate;
    }
    const double share = need_.affinity != 0 ? kSessionShare : kEqualShare;
    std::erase_if(priced_, [&](const Priced& priced) {
      return priced.lacks_room != best.lacks_room ||
             priced.seconds > best.seconds * (1 + share) + kEqualSeconds ||
             held(priced.candidate) != held(best.candidate);
    });
    if (need_.affinity != 0) {
      return std::ranges::max_element(
                 priced_,
                 {},
                 [this](const Priced& priced) { return session_rank(priced.candidate); })
          ->candidate;
    }
    const Priced& one = priced_[mixed(need_.draw, 1) % priced_.size()];
    const Priced& other = priced_[mixed(need_.draw, 2) % priced_.size()];
    return (other.seconds < one.seconds ? other : one).candidate;
  }

 private:
  static constexpr double kEqualShare = 0.05;
  static constexpr double kSessionShare = 0.25;
  static constexpr double kEqualSeconds = 1e-3;

  struct Priced {
    bool lacks_room = false;
    double seconds = 0;
    Candidate candidate;
  };

  NodeHandle prefill_handle(const Candidate& candidate) const {
    return candidate.prefill == kLocal ? NodeHandle{} : nodes_[candidate.prefill].handle;
  }
  std::tuple<bool, std::uint32_t, std::uint32_t> held(const Candidate& candidate) const {
    const bool local = candidate.prefill == kLocal;
    return {local, local ? 0 : cost_.held(candidate.prefill), cost_.held(candidate.decode)};
  }
  std::pair<std::uint64_t, std::uint64_t> session_rank(const Candidate& candidate) const {
    return {candidate.prefill == kLocal
                ? 0
                : mixed(need_.affinity, nodes_[candidate.prefill].name_hash),
            mixed(need_.affinity, nodes_[candidate.decode].name_hash)};
  }

  const std::span<const NodeView> nodes_;
  const RouteNeed& need_;
  const RouteCost cost_;
  std::vector<Priced> priced_;
};

Candidate choose(std::span<const NodeView> nodes,
                 const RouteNeed& need,
                 std::span<const Candidate> ready) {
  switch (need.policy) {
    case RoutePolicy::Cost:
      return CheapestRoute(nodes, need, ready).take();
    case RoutePolicy::Prefix:
      return best_score(nodes, need, ready);
    case RoutePolicy::LeastLoad:
      return least_load(nodes, need, ready);
    case RoutePolicy::Random:
      break;
  }
  return ready[mixed(need.draw, 1) % ready.size()];
}

}  // namespace

RoutePolicy route_policy_named(std::string_view name) {
  return name == "cost"         ? RoutePolicy::Cost
         : name == "prefix"     ? RoutePolicy::Prefix
         : name == "least_load" ? RoutePolicy::LeastLoad
                                : RoutePolicy::Random;
}

std::expected<Route, RouteMiss> choose_route(std::span<const NodeView> nodes,
                                             const RouteNeed& need) {
  Candidates all;
  for (const Choosy choosy : {Choosy::Nodes, Choosy::Pairs, Choosy::Resting, Choosy::Nothing}) {
    all = candidates(nodes, need, choosy);
    if (all.pair_exists) {
      break;
    }
  }
  if (all.ready.empty()) {
    return std::unexpected(all.pair_exists ? RouteMiss::NoCapacity : RouteMiss::NoPair);
  }
  const Candidate taken = choose(nodes, need, all.ready);
  const bool local = taken.prefill == kLocal;
  Route route;
  route.prefill = local ? NodeHandle{} : nodes[taken.prefill].handle;
  route.decode = nodes[taken.decode].handle;
  route.held_tokens =
      need.held_tokens.empty() ? 0 : need.held_tokens[local ? taken.decode : taken.prefill];
  if (!local) {
    route.prefill_s = RouteCost(nodes, need).prefill_seconds(taken.prefill, taken.decode);
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
