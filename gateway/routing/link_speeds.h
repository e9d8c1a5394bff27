// How fast blocks get from one node to another, learned from what nodes report of each request: how
// long the transfer held it up once it was computed, and how long it was computed, behind which the
// transfer hides. The sum bounds the link's speed; requests that compute little come near it.
//
// Owner: Routing. Thread: the control strand; const for the router. Failure: none.
#pragma once

#include <cstdint>
#include <map>

#include "gateway/routing/node_view.h"

namespace baton::gateway {

class LinkSpeeds {
 public:
  static constexpr double kUnmeasured = 1e-9;  // seconds a byte

  void observe(const NodePair& pair, std::uint64_t bytes, double exposed_s, double compute_s);
  void forget(NodeHandle node);
  double seconds_per_byte(const NodePair& pair) const;

 private:
  std::map<NodePair, double> pairs_;
};

}  // namespace baton::gateway
