// Which nodes, and which pairs of them, are worth new work. Faults of a node speak against the node
// alone, faults between two against that pair alone: each has a circuit breaker. What a client did
// wrong, and a node that is merely full, speak against nobody.
//
// A pair between which the digests of received blocks differed twice in a row is barred until
// either node has started anew: something between the two is broken, and a try might go unnoticed.
//
// Owner: the composition root. Thread: the control strand. Failure: none.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "gateway/cluster/circuit_breaker.h"

namespace baton::gateway {

// One life of a node's process.
struct NodeLife {
  NodeName name;
  Incarnation incarnation{};
  auto operator<=>(const NodeLife&) const = default;
};

// What an error that a node reports speaks against.
enum class Blamed : std::uint8_t { Nobody, Node, Pair };
// `is_refusal`: the node had not begun. `has_peer`: two nodes were at work.
Blamed blamed_for(ErrorCode code, bool is_refusal, bool has_peer);

class RouteHealth {
 public:
  static constexpr std::uint32_t kMaxMismatches = 2;

  struct Pair {
    NodeLife prefill;
    NodeLife decode;
    auto operator<=>(const Pair&) const = default;
  };
  // What has a breaker: a pair; or a node, whatever its role, and then `peer` has no name.
  struct Part {
    NodeLife node;  // of a pair: the prefill node
    NodeLife peer;
    bool is_pair() const { return !peer.name.empty(); }
    auto operator<=>(const Part&) const = default;
  };
  struct Breaker {
    Part part;
    BreakerState state = BreakerState::Closed;
    std::uint32_t faults = 0;  // in a row
    Duration left{};           // until it is half-open
  };

  // `metrics` may be null: then nothing is counted. `on_change`: a pair was barred or came back.
  RouteHealth(const Logger& log,
              Metrics* metrics,
              BreakerLimits limits,
              std::function<void()> on_change);

  // An attempt that `begun` then ended by a fault of this part, or was served by it.
  void failed(const Part& part, TimePoint begun, TimePoint now);
  void served(const Part& part, TimePoint begun, TimePoint now);
  // False while its breaker keeps work away.
  bool takes(const Part& part, TimePoint now) const;
  // Work goes there. What it gets is to be kept until the attempt has an outcome or ends without
  // one; while it lives, a half-open part takes nobody else. Null where none is half-open.
  std::shared_ptr<const void> begin(const std::vector<Part>& parts, TimePoint now);
  // No breaker keeps anything away.
  bool is_well() const { return breakers_.empty(); }

  // Blocks that this prefill node sent arrived changed on this decode node.
  void mismatch(const Pair& pair);
  // A transfer between them was verified.
  void verified(const Pair& pair);

  // A node is here, in this life: what was said of its earlier ones is forgotten.
  void started(const NodeLife& node);
  // It has gone: what was between it and others is forgotten.
  void left(const NodeLife& node);
  // Forgets what is old.
  void sweep(TimePoint now);

  // In order of names.
  std::vector<Pair> barred() const;
  // Those with at least one fault.
  std::vector<Breaker> breakers(TimePoint now) const;

 private:
  template <class Predicate>
  void erase_breakers(Predicate is_over);
  void count_open(const Part& part, int change);
  Counter trips_of(const Part& part) const;
  Counter mismatches_of(const Pair& pair);

  const Logger& log_;
  Metrics* const metrics_;
  const BreakerLimits limits_;
  const std::function<void()> on_change_;
  std::map<Part, CircuitBreaker> breakers_;   // no entry: closed, and nothing is known against it
  std::map<Pair, std::uint32_t> mismatches_;  // in a row
  std::map<std::pair<NodeName, NodeName>, Counter> mismatch_counters_;  // prefill, decode
  std::size_t num_barred_ = 0;
  Gauge barred_gauge_, open_nodes_, open_pairs_;
};

}  // namespace baton::gateway
