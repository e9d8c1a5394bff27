// The prefill role: composition root. Wires scheduler, links to decode nodes and gateways; no
// policy.
//
// Order of ends: stop() on the strand, then the engine thread and the transport stop, then this
// object goes. Owner: the host. Thread and failure: node/role.h.
#pragma once

#include <functional>
#include <memory>

#include "node/drain.h"
#include "node/gateway_links.h"
#include "node/kv_probe.h"
#include "node/role.h"
#include "node/step_engine.h"
#include "node/token_stream.h"
#include "prefill_node/decode_links.h"
#include "prefill_node/probe.h"
#include "prefill_node/pulls.h"
#include "prefill_node/scheduler.h"
#include "prefill_node/service.h"

namespace baton::prefill_node {

class PrefillNode final : public node::Role {
 public:
  explicit PrefillNode(node::RoleDeps deps);

  Status start() override;
  std::string control_address() const override { return ""; }
  bool is_ready() const override;
  void drain(std::chrono::milliseconds limit, std::function<void()> drained) override;
  void stop() override;

  // For tests and figures.
  const Scheduler& scheduler() const { return *scheduler_; }
  const DecodeLinks& links() const { return *links_; }
  const Pulls& pulls() const { return *pulls_; }

 private:
  void make_gateways();
  wire::Heartbeat heartbeat();

  node::RoleDeps deps_;
  Probe probe_;
  node::KvProbe kv_probe_;
  node::StepEngine steps_;
  node::TokenStream stream_;
  node::Drain drain_;
  std::unique_ptr<DecodeLinks> links_;
  std::unique_ptr<Pulls> pulls_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<node::GatewayLinks> gateways_;
};

}  // namespace baton::prefill_node
