// Which role each node should have. A pure function of what it was told: no clock, no node, no
// message.
//
// A node changes when the tighter pool would have clearly more room with it, and room is short (or
// will be: PoolLoad looks ahead), at several observations in a row. What keeps it still: a cooldown
// after each change; a change is not undone before the mix of requests has really moved; the
// smallest pools are never touched; nothing new is begun while nodes are between two roles. One
// node at a time, several only when the load is more than the pool carries. A pool that is below
// its floor is filled up from the other's nodes above its own floor; one that has lost all its
// nodes is given one if the other has two.
//
// One of these serves one model. Owner: the controller, or a simulation. Thread: its owner's.
// Failure: nothing is changed before enough is known.
#pragma once

#include <cstdint>
#include <optional>

#include "gateway/pools/pool_load.h"
#include "gateway/pools/pool_types.h"

namespace baton::gateway {

class PoolPolicy {
 public:
  explicit PoolPolicy(PoolOptions options) : options_(options), load_(options) {}

  void change_options(const PoolOptions& options) {
    options_ = options;
    load_.change_targets(options);
  }

  // Once an interval. What it says to change counts as begun.
  PoolDecision decide(TimePoint now, const PoolObservation& seen);

 private:
  PoolSize wanted_split(const PoolObservation& seen, PoolSize now_there) const;
  PoolSize wanted_replicas(TimePoint now, PoolSize now_there);
  std::uint32_t num_to_rescue(PoolSize there, NodeRole to) const;
  bool rescue(TimePoint now, const PoolObservation& seen, PoolSize there, PoolDecision& decision);
  bool is_due(TimePoint now, const PoolDecision& decision, NodeRole to);
  std::uint32_t step(const PoolDecision& decision, PoolSize now_there, NodeRole to) const;

  PoolOptions options_;
  PoolLoad load_;
  struct Change {
    TimePoint at;
    NodeRole to;
    double mix;
  };
  std::optional<Change> last_;
  // Observations in a row that asked for the same.
  NodeRole asked_ = NodeRole::Prefill;
  std::uint32_t times_asked_ = 0;
  PoolSize most_there_;                   // nodes of each role at one time
  std::optional<TimePoint> short_since_;  // one pool, while the other could give it a node
  std::uint32_t times_short_ = 0;         // observations in a row
  // Replicas go down only to what was enough all through a cooldown.
  PoolSize replicas_;
  PoolSize lower_;
  TimePoint lower_since_;
};

}  // namespace baton::gateway
