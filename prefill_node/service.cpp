#include "prefill_node/service.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"
#include "node/asked.h"
#include "transfer/staging.h"

namespace baton::prefill_node {

Service::Service(Parts parts, std::uint32_t credits)
    : parts_(std::move(parts)), credits_(credits) {}

void Service::on_frame(node::ClientId client, Channel& channel, wire::Frame frame) {
  switch (frame.body_case()) {
    case wire::Frame::kPrefill:
      prefill(client, nullptr, frame.prefill());
      return;
    case wire::Frame::kCancel:
      parts_.scheduler.cancel(
          client, RequestId{frame.cancel().request()}, Attempt{frame.cancel().attempt()});
      return;
    case wire::Frame::kArtifactRequest:
      parts_.artifacts.answer(channel, frame);
      return;
    case wire::Frame::kDrain:
      parts_.drain.answer(channel, frame);
      return;
    default:
      channel.answer_error(frame,
                           {ErrorCode::ProtocolError, "a prefill node takes no such message"});
  }
}

Status Service::on_handed(const DecodeLinks::Life& decode, const wire::Prefill& message) {
  const node::ClientId client =
      parts_.client_of({message.gateway(), Incarnation{message.gateway_incarnation()}});
  if (client == node::ClientId{}) {
    return fail(
        ErrorCode::PeerDead,
        fmt::format("node {} has no connection to the request's gateway", parts_.identity.name));
  }
  prefill(client, &decode, message);
  return {};
}

void Service::prefill(node::ClientId client,
                      const DecodeLinks::Life* decode,
                      const wire::Prefill& message) {
  if (const Status taken = take(client, decode, message); !taken) {
    if (taken.error().code == ErrorCode::Busy) {
      parts_.probe.busy();
    }
    parts_.stream.send_now(client, node::refusal_event(message.request(), taken.error()));
  }
}

Status Service::take(node::ClientId client,
                     const DecodeLinks::Life* decode,
                     const wire::Prefill& message) {
  BATON_TRY(parts_.drain.check_open());
  BATON_ASSIGN(node::Asked asked,
               node::read_request(message.request(), parts_.identity, parts_.log));
  BATON_ASSIGN(KvGrant grant, from_wire(message.grant()));
  if (decode != nullptr &&
      (grant.control_address != decode->address || grant.incarnation != decode->incarnation)) {
    return fail(ErrorCode::ProtocolError, "the grant is not of the decode node that hands it on");
  }
  BATON_TRY(check_grant(grant, asked.size));
  if (parts_.scheduler.num_uncomputed(client) >= credits_) {
    return fail(ErrorCode::Busy,
                fmt::format("this gateway has {} requests in work on node {}, its credits",
                            credits_,
                            parts_.identity.name));
  }
  parts_.scheduler.add(
      client, std::move(asked.request), asked.size, std::move(grant), decode != nullptr);
  return {};
}

Status Service::check_grant(const KvGrant& grant, const engine::RequestSize& size) const {
  const KvLayout& own = parts_.kv.layout();
  BATON_TRY(transfer::needs_conversion(own, grant));
  const std::uint32_t needed = own.blocks_for(size.context);
  if (needed > parts_.kv.pool().total()) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("the prompt needs {} KV blocks and node {} has {}: raise kv.arena_mb",
                            needed,
                            parts_.identity.name,
                            parts_.kv.pool().total()));
  }
  const KvLayout& layout = grant.layout.layers > 0 ? grant.layout : own;
  std::uint64_t granted = grant.prefix_blocks;
  for (const BlockRun& run : grant.runs) {
    granted += run.count;
  }
  if (granted != layout.blocks_for(size.context) ||
      grant.prefix_blocks > size.context / layout.block_tokens) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("the grant covers {} blocks and the prompt has {}",
                            granted,
                            layout.blocks_for(size.context)));
  }
  return {};
}

}  // namespace baton::prefill_node
