// What gateways ask of a decode node: Reserve (a grant, or a local prefill), Cancel, the tokenizer.
//
// Owner: DecodeNode. Thread: control strand. Failure: every wrong request is answered by a Refusal
// and changes nothing.
#pragma once

#include <functional>

#include "common/config/cluster_config.h"
#include "common/obs/log.h"
#include "common/rpc/channel.h"
#include "decode_node/grant_table.h"
#include "decode_node/probe.h"
#include "decode_node/scheduler.h"
#include "node/artifacts.h"
#include "node/drain.h"
#include "node/identity.h"

namespace baton::decode_node {

class Service {
 public:
  Service(GrantTable& grants,
          Scheduler& scheduler,
          engine::KvMemory& kv,
          Probe& probe,
          const node::Artifacts& artifacts,
          const node::NodeIdentity& identity,
          node::Drain& drain,
          DecodeSection config,
          const Logger& log);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() = default;

  void on_frame(node::ClientId client, Channel& channel, wire::Frame frame);
  void on_client_lost(node::ClientId client);
  // A grant's blocks are whole: its sequence joins the batch.
  void on_verified(std::unique_ptr<Grant> grant);
  // Requests that were granted since the start.
  std::uint64_t num_taken() const { return num_taken_; }

 private:
  Result<KvGrant> reserve(node::ClientId client, const wire::Reserve& message);
  Result<KvGrant> reserve_local(node::ClientId client,
                                GenerateRequest request,
                                const engine::RequestSize& size,
                                const GrantTable::Terms& terms);
  void cancel(node::ClientId client, const wire::Cancel& message);

  GrantTable& grants_;
  Scheduler& scheduler_;
  engine::KvMemory& kv_;
  Probe& probe_;
  const node::Artifacts& artifacts_;
  const node::NodeIdentity& identity_;
  node::Drain& drain_;
  const DecodeSection config_;
  const Logger& log_;
  std::uint64_t num_taken_ = 0;
};

}  // namespace baton::decode_node
