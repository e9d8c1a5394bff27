// How long transfers between two nodes hold a request up, for each byte: learned from what decode
// nodes report. What hides behind computing does not count.
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

  void observe(const NodePair& pair, std::uint64_t bytes, double seconds);
  void forget(NodeHandle node);
  double seconds_per_byte(const NodePair& pair) const;

 private:
  std::map<NodePair, double> pairs_;
};

}  // namespace baton::gateway
