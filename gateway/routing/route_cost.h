// What a route costs, in seconds: the wait in the prefill node's queue, computing what it does not
// hold, moving what the decode node does not hold, and a slower step for this request and for those
// that run there already. Work counts the more, the more prefill nodes are busy: what a node
// computes again, others wait for. One sum, so that prefilling on the decode node, taking blocks
// from it, or a longer queue in front of a warm cache are weighed against each other.
//
// Thread: pure value, made for one decision; it borrows the view. Failure: none. Speeds nobody has
// measured are taken from the other nodes, or guessed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gateway/routing/router.h"

namespace baton::gateway {

class RouteCost {
 public:
  RouteCost(std::span<const NodeView> nodes, const RouteNeed& need);

  // Nodes are indices into the view.
  double remote(std::size_t prefill, std::size_t decode) const;
  double local(std::size_t decode) const;

  // Leading tokens that the node need not compute; the last one it always does.
  std::uint32_t held(std::size_t node) const;
  double queue_seconds(std::size_t prefill) const;
  // How long the prefill node is at work on the prompt, pulling included.
  double prefill_seconds(std::size_t prefill, std::size_t decode) const {
    return work(prefill, decode).seconds;
  }

 private:
  struct Work {
    double seconds = 0;        // on this node
    double usual_seconds = 0;  // on a usual one
  };
  // Computing what the prefill node does not hold; or, where that is faster, pulling what decode
  // holds and computing the rest.
  Work work(std::size_t prefill, std::size_t decode) const;
  double rate(const NodeView& node) const;  // tokens a second
  double compute(const NodeView& node, std::uint32_t held) const;
  double move(std::size_t prefill, std::size_t decode, std::uint32_t tokens) const;
  // Of one more sequence on the decode node.
  double effect(const NodeView& decode) const;

  const std::span<const NodeView> nodes_;
  const RouteNeed& need_;
  double usual_rate_ = 0;      // of nodes that were measured
  double usual_step_ = 0;      // seconds, likewise
  double usual_sequence_ = 0;  // what one more takes; 0: not known of any
  double busy_weight_ = 0;     // of work, for those who wait behind it
  struct Terms {
    double compute = 0;  // with what it holds
    double wait = 0;     // prefill: its queue; decode: `effect`
  };
  std::vector<Terms> terms_;  // by node
};

// Room for the request's blocks comes before any cost.
bool has_room(const NodeView& decode, const RouteNeed& need);

}  // namespace baton::gateway
