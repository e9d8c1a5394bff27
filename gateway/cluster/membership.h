// Which nodes there are: they dial the gateway, say what they are, and stay as long as their
// heartbeats come. A node whose model, layout, numerics, tokenizer or UCX version differs from the
// first node of its model is refused by a message that names the field; so is one with the name or
// the address of another that is alive.
//
// Sequence of events, for each registration: on_up -> [on_change | on_tokens | on_kv_events |
// on_granted]* -> on_down. A node that comes back under its name is a new registration; the old one
// goes down first.
//
// Owner: the composition root. Thread: the control strand. Failure: `listen` gives an Error for a
// bad address or busy port; bad nodes are refused or dropped.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/config/cluster_config.h"
#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/network.h"
#include "common/wire/control.pb.h"
#include "gateway/cluster/reactor_watch.h"
#include "gateway/cluster/route_health.h"
#include "gateway/routing/predicted_work.h"
#include "gateway/routing/router.h"

namespace baton::gateway {

struct Node {
  NodeHandle handle{};
  NodeName name;
  std::uint64_t name_hash = 0;
  NodeRole role = NodeRole::Prefill;
  Incarnation incarnation{};
  std::string control_address;
  wire::ModelIdentity model;
  wire::NodeLoad load;
  bool draining = false;
  bool drain_asked = false;               // by an operator; it gets nothing new whatever it says
  bool may_change_role = false;           // this gateway may give it the other role
  PeerHealth health = PeerHealth::Alive;  // the worse of heartbeats and data thread
  ReactorWatch reactor;
  std::unique_ptr<Channel> channel;  // open while registered
  std::unique_ptr<HeartbeatWatch> watch;

  // What this gateway has given it; kept by the request tracker.
  std::uint32_t credits_used = 0;     // prefill: requests outstanding
  std::uint64_t credits_taken = 0;    // prefill: requests ever given
  std::uint64_t tokens_given = 0;     // prefill: their tokens that it has to compute
  std::uint64_t contexts_given = 0;   // prefill: their tokens, with what it has cached
  PredictedWork work;                 // prefill: what it has to do for them
  std::uint64_t foreign_tokens = 0;   // prefill: what it reported beyond ours; others' requests
  std::uint32_t sequences_given = 0;  // decode: asked for, not refused and not ended
  std::uint64_t sequences_taken = 0;  // decode: all that it has not refused
  bool busy = false;                  // refused work; cleared by its next heartbeat or end

  bool is_draining() const { return draining || drain_asked; }
  NodeLife life() const { return {name, incarnation}; }
  NodeView view(TimePoint now) const;

  // Of `model`, made once.
  std::uint64_t model_stamp = 0;
  KvLayout layout;
};

// One model as its first node described it.
struct ModelEntry {
  wire::ModelIdentity identity;
  std::string ucx_version;
  std::uint32_t nodes = 0;
};

struct MembershipHandlers {
  std::function<void(Node&)> on_up;
  std::function<void(Node&)> on_change;  // load, health or draining
  std::function<void(Node&, const wire::TokenFrame&)> on_tokens;
  std::function<void(Node&, const Error&)> on_down;  // it is out of the table already
  std::function<void(Node&, const wire::KvEvents&)> on_kv_events;
  std::function<void(Node&, wire::Granted&)> on_granted;  // may take the grant
};

struct MembershipStats {
  std::uint64_t registered = 0;
  std::uint64_t refused = 0;
  std::uint64_t lost = 0;  // channel closed, heartbeats missed
  std::uint64_t replaced = 0;
  std::uint64_t bad_frames = 0;
};

class Membership {
 public:
  Membership(Executor& executor,
             Network& network,
             const Logger& log,
             ClusterSection options,
             NodeName gateway_name,
             Incarnation incarnation,
             MembershipHandlers handlers);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();

  Status listen(const std::string& address);
  // host:port it really has; empty before `listen`.
  std::string address() const;
  // Closes every channel; no handler runs any more.
  void stop();

  // Asks a node to take nothing new and to hand back what it has, within `limit`; with `then_role`,
  // to come back with that role after it (REQUIRES: may_change_role). False: no node of that name.
  bool drain(const NodeName& name,
             std::chrono::milliseconds limit,
             const std::string& then_role = "");

  Node* find(NodeHandle handle);
  // Zero: no node of that name.
  NodeHandle handle_of(const NodeName& name) const;
  // In order of name.
  std::vector<const Node*> nodes() const;
  std::vector<NodeView> views_of(const std::string& model) const;
  const std::map<std::string, ModelEntry>& models() const { return models_; }
  const MembershipStats& stats() const { return stats_; }

 private:
  HelloAnswer on_hello(const wire::Hello& hello);
  void on_accept(std::unique_ptr<Channel> channel, wire::Hello hello);
  std::optional<wire::Refusal> check(const wire::Hello& hello) const;
  // A living node of another name that is dialled at this one's address; null: none.
  const Node* other_with_address(const wire::Hello& hello) const;
  void on_frame(NodeHandle handle, wire::Frame frame);
  void on_heartbeat(Node& node, wire::Heartbeat& beat);
  void on_health(NodeHandle handle, PeerHealth health);
  // True when the node's health has changed.
  bool judge(Node& node);
  HeartbeatLimits limits() const;
  void drop(NodeHandle handle, const Error& why);

  Executor& executor_;
  Network& network_;
  const Logger& log_;
  const ClusterSection options_;
  const NodeName gateway_name_;
  const Incarnation incarnation_;
  const MembershipHandlers handlers_;
  std::unique_ptr<Listener> listener_;
  std::map<NodeName, std::unique_ptr<Node>> nodes_;
  std::map<std::string, ModelEntry> models_;  // by model id; gone with the last node
  // Lives that were dropped for their data thread, and where its counter stood.
  std::map<NodeName, std::pair<Incarnation, std::uint64_t>> stuck_;
  MembershipStats stats_;
  std::uint64_t next_handle_ = 1;
  bool stopped_ = false;
};

// The pairs out of routing until a node starts anew.
std::vector<NodePair> barred_pairs(const RouteHealth& health, const Membership& membership);
// What breakers keep work away from: pairs, and nodes as a pair's prefill, whatever their role.
std::vector<NodePair> resting_parts(const RouteHealth& health,
                                    const Membership& membership,
                                    TimePoint now);

}  // namespace baton::gateway
