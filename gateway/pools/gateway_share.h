// Which part of all requests comes through this gateway, when several serve the same pools: its
// own grants beside the requests that decode nodes say they have taken, over some minutes. What one
// gateway sees arrive, divided by its share, is what the pools have to carry.
//
// Owner: the pool controller, one a model. Thread: the control strand. Failure: none; all of them
// before enough was seen.
#pragma once

#include <cstdint>
#include <map>

#include "gateway/pools/pool_types.h"

namespace baton::gateway {

class GatewayShare {
 public:
  // Of one decode node at the end of an interval: requests that it has taken from all gateways, and
  // from this one. Both only grow; a handle is one life of a node.
  void observe(NodeHandle node, std::uint64_t taken, std::uint64_t given);
  void end_interval();

  // Above 0, at most 1.
  double get() const;
  // The arrivals, ends and waiting requests of all gateways, if the others' are like ours.
  void scale(PoolObservation& seen) const;

 private:
  struct Counts {
    std::uint64_t taken = 0;
    std::uint64_t given = 0;
    bool is_there = true;  // seen in this interval
  };

  std::map<NodeHandle, Counts> nodes_;
  double taken_ = 0;  // lately
  double given_ = 0;
};

}  // namespace baton::gateway
