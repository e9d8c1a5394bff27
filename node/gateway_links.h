// A node's connections to all gateways: dials each, greets, sends heartbeats with the node's load
// and the changes of its prefix cache, hands requests to the role, dials again after a loss.
//
// Owner: a node's role. Thread: control strand. Failure: a gateway that cannot be reached is tried
// again; what it had asked for is reported lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/peer_link.h"
#include "node/client.h"
#include "node/kv_events.h"
#include "node/role.h"

namespace baton::node {

struct GatewayHandlers {
  std::function<wire::Heartbeat()> make_heartbeat;                // its load goes into Hello, too
  std::function<void(ClientId, Channel&, wire::Frame)> on_frame;  // frames that are no answers
  std::function<void(ClientId)> on_lost;                          // all its requests are void
};

class GatewayLinks {
 public:
  // To `cluster.gateways`, as `deps.identity`.
  GatewayLinks(const RoleDeps& deps, GatewayHandlers handlers);
  GatewayLinks(const GatewayLinks&) = delete;
  GatewayLinks& operator=(const GatewayLinks&) = delete;
  ~GatewayLinks();

  void start();
  void stop();
  // To one client; dropped when it is gone.
  void send(ClientId client, wire::Frame frame);
  // Whose connection a client is; null once it is gone.
  const GatewayLife* life_of(ClientId client) const;
  // Zero: that gateway is not connected.
  ClientId client_of(const GatewayLife& gateway) const;
  // A heartbeat to everybody now, for a change that should not wait; or to one client.
  void beat_now();
  void beat_now(ClientId client);
  std::uint32_t num_up() const;

 private:
  struct Link {
    std::unique_ptr<PeerLink> peer;
    ClientId client{};                     // of the connection that is up
    GatewayLife life;                      // while up
    std::optional<KvEventFeed> events;     // while up
    std::optional<HeartbeatSender> beats;  // while up
    std::string told;                      // why the last dial failed; a line a reason, not a dial
  };
  void on_up(Link& link, const wire::Welcome& welcome);
  void on_down(Link& link, const Error& why);
  Link* link_of(ClientId client) const;  // null once it is gone
  void send_heartbeat(Link& link);
  // The first of `cluster.gateways` that is up may change the node's role, so that all nodes obey
  // the same one.
  bool is_controller(const Link& link) const;

  Executor& executor_;
  const std::chrono::milliseconds heartbeat_;
  const engine::PrefixIndex& index_;
  const Logger& log_;
  const GatewayHandlers handlers_;
  const bool can_change_role_;
  std::vector<std::unique_ptr<Link>> links_;
  std::uint64_t next_client_ = 1;
};

}  // namespace baton::node
