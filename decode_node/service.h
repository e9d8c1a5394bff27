// What gateways ask of a decode node: Reserve (a grant, handed on to the prefill node with its
// request; or a local prefill), Cancel, the tokenizer.
//
// Owner: DecodeNode. Thread: control strand. Failure: every wrong request is refused by an error
// event and changes nothing.
#pragma once

#include <functional>
#include <set>

#include "common/config/cluster_config.h"
#include "common/obs/log.h"
#include "common/rpc/channel.h"
#include "decode_node/grant_table.h"
#include "decode_node/probe.h"
#include "decode_node/scheduler.h"
#include "decode_node/writers.h"
#include "node/artifacts.h"
#include "node/client.h"
#include "node/drain.h"
#include "node/identity.h"
#include "node/token_stream.h"

namespace baton::decode_node {

class Service {
 public:
  struct Parts {
    GrantTable& grants;
    Scheduler& scheduler;
    Writers& writers;
    node::TokenStream& stream;
    engine::KvMemory& kv;
    Probe& probe;
    const node::Artifacts& artifacts;
    const node::NodeIdentity& identity;
    node::Drain& drain;
    const Logger& log;
    // Whose connection a client is; null once it is gone.
    std::function<const node::GatewayLife*(node::ClientId)> life_of;
    // Tells a client the node's load now.
    std::function<void(node::ClientId)> tell_load;
  };
  Service(Parts parts, DecodeSection config);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() = default;

  void on_frame(node::ClientId client, Channel& channel, wire::Frame frame);
  void on_client_lost(node::ClientId client);
  // A grant's blocks are whole: its sequence joins the batch.
  void on_verified(std::unique_ptr<Grant> grant);
  // A place in the batch or blocks are free again. Gateways that were refused for want of them hear
  // of it now, as those do whose request has ended; else these would take every place first.
  void on_room();
  // Requests that were granted since the start.
  std::uint64_t num_taken() const { return num_taken_; }

 private:
  Status reserve(node::ClientId client, Channel& channel, wire::Reserve& message);
  Status reserve_local(node::ClientId client,
                       GenerateRequest request,
                       const engine::RequestSize& size,
                       const GrantTable::Terms& terms);
  // Takes the request out of `message`.
  void hand_on(node::ClientId client,
               Channel& channel,
               wire::Reserve& message,
               const KvGrant& grant);
  void cancel(node::ClientId client, const wire::Cancel& message);

  const Parts parts_;
  const DecodeSection config_;
  std::uint64_t num_taken_ = 0;
  std::set<node::ClientId> refused_;  // since there was room last
};

}  // namespace baton::decode_node
