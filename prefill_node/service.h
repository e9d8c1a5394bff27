// What gateways ask of a prefill node: Prefill, Cancel, the tokenizer.
//
// Owner: PrefillNode. Thread: control strand. Failure: every wrong request is answered by a Refusal
// and changes nothing.
#pragma once

#include "common/config/cluster_config.h"
#include "common/rpc/channel.h"
#include "node/artifacts.h"
#include "node/drain.h"
#include "node/identity.h"
#include "prefill_node/probe.h"
#include "prefill_node/scheduler.h"

namespace baton::prefill_node {

class Service {
 public:
  Service(Scheduler& scheduler,
          const engine::KvMemory& kv,
          Probe& probe,
          const node::Artifacts& artifacts,
          const node::NodeIdentity& identity,
          node::Drain& drain,
          std::uint32_t credits,
          const Logger& log);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() = default;

  void on_frame(node::ClientId client, Channel& channel, wire::Frame frame);
  void on_client_lost(node::ClientId client) { scheduler_.cancel_client(client); }

 private:
  Status prefill(node::ClientId client, const wire::Prefill& message);
  Status check_grant(const KvGrant& grant, const engine::RequestSize& size) const;

  Scheduler& scheduler_;
  const engine::KvMemory& kv_;
  Probe& probe_;
  const node::Artifacts& artifacts_;
  const node::NodeIdentity& identity_;
  node::Drain& drain_;
  const std::uint32_t credits_;
  const Logger& log_;
};

}  // namespace baton::prefill_node
