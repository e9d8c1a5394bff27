// The decode role: composition root. Wires grants, writers, scheduler and gateways; no policy.
//
// Order of ends: stop() on the strand, then the engine thread and the transport stop, then this
// object goes. Owner: the host. Thread and failure: node/role.h.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "decode_node/grant_table.h"
#include "decode_node/probe.h"
#include "decode_node/pull_service.h"
#include "decode_node/scheduler.h"
#include "decode_node/service.h"
#include "decode_node/writers.h"
#include "node/drain.h"
#include "node/gateway_links.h"
#include "node/kv_probe.h"
#include "node/role.h"
#include "node/step_engine.h"
#include "node/token_stream.h"

namespace baton::decode_node {

class DecodeNode final : public node::Role {
 public:
  explicit DecodeNode(node::RoleDeps deps);

  Status start() override;
  std::string control_address() const override { return deps_.identity.control_address; }
  bool is_ready() const override;
  void drain(std::chrono::milliseconds limit, std::function<void()> drained) override;
  void stop() override;

  // For tests and figures.
  const GrantTable& grants() const { return *grants_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  std::uint32_t num_writers() const { return writers_->num_connected(); }

 private:
  void make_grants();
  void make_scheduler();
  void room_freed();
  wire::Heartbeat heartbeat();

  node::RoleDeps deps_;
  Probe probe_;
  node::KvProbe kv_probe_;
  node::StepEngine steps_;
  node::TokenStream stream_;
  node::Drain drain_;
  std::unique_ptr<GrantTable> grants_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PullService> pulls_;
  std::unique_ptr<Writers> writers_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<node::GatewayLinks> gateways_;
  std::map<NodeName, std::unique_ptr<transfer::Inlet>> inlets_;  // welcomed, no channel yet
  std::unique_ptr<Listener> listener_;
};

}  // namespace baton::decode_node
