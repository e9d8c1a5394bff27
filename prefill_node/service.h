// What gateways ask of a prefill node: Prefill, Cancel, the tokenizer; and what decode nodes hand
// on of them.
//
// Owner: PrefillNode. Thread: control strand. Failure: every wrong request is refused by an error
// event to its gateway and changes nothing.
#pragma once

#include <functional>

#include "common/config/cluster_config.h"
#include "common/rpc/channel.h"
#include "node/artifacts.h"
#include "node/client.h"
#include "node/drain.h"
#include "node/identity.h"
#include "node/token_stream.h"
#include "prefill_node/decode_links.h"
#include "prefill_node/probe.h"
#include "prefill_node/scheduler.h"

namespace baton::prefill_node {

class Service {
 public:
  struct Parts {
    Scheduler& scheduler;
    node::TokenStream& stream;
    const engine::KvMemory& kv;
    Probe& probe;
    const node::Artifacts& artifacts;
    const node::NodeIdentity& identity;
    node::Drain& drain;
    const Logger& log;
    // Zero: that gateway is not connected.
    std::function<node::ClientId(const node::GatewayLife&)> client_of;
  };
  Service(Parts parts, std::uint32_t credits);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() = default;

  void on_frame(node::ClientId client, Channel& channel, wire::Frame frame);
  // Handed on by that life of a decode node. An error: its gateway could not be told.
  Status on_handed(const DecodeLinks::Life& decode, const wire::Prefill& message);
  void on_client_lost(node::ClientId client) { parts_.scheduler.cancel_client(client); }

 private:
  // `decode`: whose grant it must be; null: anybody's.
  void prefill(node::ClientId client,
               const DecodeLinks::Life* decode,
               const wire::Prefill& message);
  Status take(node::ClientId client, const DecodeLinks::Life* decode, const wire::Prefill& message);
  Status check_grant(const KvGrant& grant, const engine::RequestSize& size) const;

  const Parts parts_;
  const std::uint32_t credits_;
};

}  // namespace baton::prefill_node
