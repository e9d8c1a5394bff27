#include "prefill_node/service.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"
#include "node/asked.h"
#include "transfer/staging.h"

namespace baton::prefill_node {

Service::Service(Scheduler& scheduler,
                 const engine::KvMemory& kv,
                 Probe& probe,
                 const node::Artifacts& artifacts,
                 const node::NodeIdentity& identity,
                 node::Drain& drain,
                 std::uint32_t credits,
                 const Logger& log)
    : scheduler_(scheduler),
      kv_(kv),
      probe_(probe),
      artifacts_(artifacts),
      identity_(identity),
      drain_(drain),
      credits_(credits),
      log_(log) {}

void Service::on_frame(node::ClientId client, Channel& channel, wire::Frame frame) {
  switch (frame.body_case()) {
    case wire::Frame::kPrefill: {
      if (const Status status = prefill(client, frame.prefill()); !status) {
        if (status.error().code == ErrorCode::Busy) {
          probe_.busy();
        }
        channel.answer_error(frame, status.error());
        return;
      }
      wire::Frame accepted;
      accepted.mutable_accepted();
      channel.answer(frame, std::move(accepted));
      return;
    }
    case wire::Frame::kCancel:
      scheduler_.cancel(
          client, RequestId{frame.cancel().request()}, Attempt{frame.cancel().attempt()});
      return;
    case wire::Frame::kArtifactRequest:
      artifacts_.answer(channel, frame);
      return;
    case wire::Frame::kDrain:
      drain_.answer(channel, frame);
      return;
    default:
      channel.answer_error(frame,
                           {ErrorCode::ProtocolError, "a prefill node takes no such message"});
  }
}

Status Service::prefill(node::ClientId client, const wire::Prefill& message) {
  BATON_TRY(drain_.check_open());
  BATON_ASSIGN(node::Asked asked, node::read_request(message.request(), identity_, log_));
  BATON_ASSIGN(KvGrant grant, from_wire(message.grant()));
  BATON_TRY(check_grant(grant, asked.size));
  if (scheduler_.num_uncomputed(client) >= credits_) {
    return fail(ErrorCode::Busy,
                fmt::format("this gateway has {} requests in work on node {}, its credits",
                            credits_,
                            identity_.name));
  }
  scheduler_.add(client, std::move(asked.request), asked.size, std::move(grant));
  return {};
}

Status Service::check_grant(const KvGrant& grant, const engine::RequestSize& size) const {
  const KvLayout& own = kv_.layout();
  BATON_TRY(transfer::needs_conversion(own, grant));
  const std::uint32_t needed = own.blocks_for(size.context);
  if (needed > kv_.pool().total()) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("the prompt needs {} KV blocks and node {} has {}: raise kv.arena_mb",
                            needed,
                            identity_.name,
                            kv_.pool().total()));
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
