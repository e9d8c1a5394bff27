// What this gateway knows for routing beside the nodes' loads: which blocks they hold, what it has
// just sent them, and how fast they and the links between them have been. Gives it to the router
// for one request after another.
//
// Owner: RequestTracker. Thread: the control strand. Failure: none; what is not known costs a worse
// choice.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/exec/executor.h"
#include "gateway/routing/link_speeds.h"
#include "gateway/routing/prefix_map.h"
#include "gateway/routing/prompt_chain.h"
#include "gateway/routing/router.h"
#include "gateway/routing/sent_blocks.h"
#include "gateway/routing/two_term_fit.h"

namespace baton::gateway {

struct RoutingOptions {
  RoutePolicy policy = RoutePolicy::Cost;
  double itl_tokens = 8;                        // RouteNeed::itl_tokens
  bool pulls = true;                            // RouteNeed::pulls
  Duration linger = std::chrono::seconds(2);    // of blocks computed and not announced
  std::uint64_t mixer = 0x2545f4914f6cdd1dULL;  // drawn at random where clients may be hostile
};

// One message of a node about its prefix cache (KvEvents in common/wire/control.proto).
struct BlockEvents {
  std::uint64_t sequence = 0;
  bool reset = false;
  std::span<const std::uint64_t> stored;
  std::span<const std::uint64_t> removed;
};

class Routing {
 public:
  explicit Routing(RoutingOptions options);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  // ---- what nodes tell
  void on_events(NodeHandle node, const BlockEvents& events);
  // A decode node's step, once it has made new ones.
  void on_step(
      NodeHandle node, std::uint64_t steps, std::uint32_t running, double seconds, TimePoint now);
  // `tokens` were computed behind `held` others, with no other request of ours on the node.
  void on_prefill(NodeHandle node, std::uint32_t held, std::uint32_t tokens, double seconds);
  void on_transfer(const NodePair& pair, std::uint64_t bytes, double exposed_s, double compute_s) {
    links_.observe(pair, bytes, exposed_s, compute_s);
  }
  void on_node_down(NodeHandle node);

  // ---- for one request
  // Fills in what was learned of the nodes. A decode node that has made no step for a while counts
  // as not measured: the figures of a bad moment would keep away the requests that could show
  // better ones.
  void describe(std::span<NodeView> nodes, TimePoint now) const;
  // Leading tokens of the prompt that each node holds or soon will; valid until the next call. The
  // chains of block sizes that are missing are made.
  std::span<const std::uint32_t> held_tokens(std::span<const NodeView> nodes,
                                             std::span<const TokenId> prompt,
                                             PromptChains& chains,
                                             TimePoint now);
  // The request goes this way: its blocks are expected where they are computed, and then where they
  // are moved to.
  SentBlocks::Ticket sent(const Route& route,
                          std::span<const NodeView> nodes,
                          std::span<const TokenId> prompt,
                          PromptChains& chains);
  void settled(SentBlocks::Ticket ticket, TimePoint now, bool was_computed) {
    sent_.settled(ticket, now, was_computed);
  }

  const RoutingOptions& options() const { return options_; }
  const LinkSpeeds& links() const { return links_; }
  std::uint32_t announced(NodeHandle node) const;  // blocks
  const PrefixMap& blocks() const { return map_; }

 private:
  struct Known {
    PrefixMap::Slot slot = 0;
    std::uint64_t sequence = 0;  // of its last event
    TwoTermFit prefill;
    TwoTermFit step;
    std::uint64_t steps = 0;
    TimePoint stepped;  // when it last told of new ones
  };
  Known& known(NodeHandle node);
  void retire(PrefixMap::Slot slot);

  const RoutingOptions options_;
  PrefixMap map_;
  SentBlocks sent_;
  LinkSpeeds links_;
  std::unordered_map<NodeHandle, Known> nodes_;
  // Kept for their memory.
  std::vector<std::uint32_t> expected_;  // by slot
  std::vector<std::uint32_t> matched_;   // by slot
  std::vector<std::uint32_t> held_;      // by view
};

}  // namespace baton::gateway
