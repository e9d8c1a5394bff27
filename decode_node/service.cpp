#include "decode_node/service.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"
#include "node/asked.h"

namespace baton::decode_node {

Service::Service(GrantTable& grants,
                 Scheduler& scheduler,
                 engine::KvMemory& kv,
                 Probe& probe,
                 const node::Artifacts& artifacts,
                 const node::NodeIdentity& identity,
                 node::Drain& drain,
                 DecodeSection config,
                 const Logger& log)
    : grants_(grants),
      scheduler_(scheduler),
      kv_(kv),
      probe_(probe),
      artifacts_(artifacts),
      identity_(identity),
      drain_(drain),
      config_(std::move(config)),
      log_(log) {}

void Service::on_frame(node::ClientId client, Channel& channel, wire::Frame frame) {
  switch (frame.body_case()) {
    case wire::Frame::kReserve: {
      auto grant = reserve(client, frame.reserve());
      if (!grant) {
        if (grant.error().code == ErrorCode::Busy) {
          probe_.busy();
        }
        channel.answer_error(frame, grant.error());
        return;
      }
      ++num_taken_;
      wire::Frame granted;
      *granted.mutable_granted()->mutable_grant() = to_wire(*grant);
      channel.answer(frame, std::move(granted));
      return;
    }
    case wire::Frame::kCancel:
      cancel(client, frame.cancel());
      return;
    case wire::Frame::kArtifactRequest:
      artifacts_.answer(channel, frame);
      return;
    case wire::Frame::kDrain:
      drain_.answer(channel, frame);
      return;
    default:
      channel.answer_error(
          frame, {ErrorCode::ProtocolError, "a decode node takes no such message from a gateway"});
  }
}

Result<KvGrant> Service::reserve(node::ClientId client, const wire::Reserve& message) {
  BATON_TRY(drain_.check_open());
  BATON_ASSIGN(node::Asked asked, node::read_request(message.request(), identity_, log_));
  // Grants count: a sequence whose blocks arrive must find a place in the batch.
  const std::uint32_t in_work = scheduler_.num_running() + grants_.num_open();
  if (in_work >= scheduler_.batch_limit()) {
    return fail(ErrorCode::Busy,
                fmt::format("node {} has {} requests in work, its limit; retry when one has ended",
                            identity_.name,
                            in_work));
  }
  // Each request that may outgrow its blocks keeps one block away from newcomers.
  const GrantTable::Terms terms{
      .output_tokens = message.reserve_full() ? 0 : config_.expected_output_tokens,
      .headroom = scheduler_.num_growing() + grants_.num_growing()};
  if (message.local()) {
    return reserve_local(client, std::move(asked.request), asked.size, terms);
  }
  auto grant = grants_.grant(client, asked.request, asked.size, terms);
  if (grant) {
    scheduler_.expect(asked.request.grammar);  // compiled while the prompt is computed elsewhere
  }
  return grant;
}

Result<KvGrant> Service::reserve_local(node::ClientId client,
                                       GenerateRequest request,
                                       const engine::RequestSize& size,
                                       const GrantTable::Terms& terms) {
  const std::uint32_t block_tokens = kv_.layout().block_tokens;
  // The last token is always computed: its result gives the first new one. So is every token whose
  // log-probability is asked for.
  const std::uint32_t max_prefix =
      engine::wants_prompt_logprobs(request) ? 0 : (size.context - 1) / block_tokens;
  const std::uint32_t cached =
      kv_.index().peek(engine::context_of(request), max_prefix) * block_tokens;
  // A resumed request has grown; where it was taken by its prompt, it is taken again.
  if (size.context - cached > config_.local_prefill_max_tokens &&
      request.prompt.size() > config_.local_prefill_max_tokens) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} tokens are to be prefilled and node {} takes up to {} "
                            "(decode.local_prefill_max_tokens)",
                            size.context - cached,
                            identity_.name,
                            config_.local_prefill_max_tokens));
  }
  BATON_ASSIGN(GrantTable::Blocks blocks, grants_.take_blocks(request, size, max_prefix, terms));
  const std::uint32_t held = blocks.prefix.num_blocks();
  Scheduler::Arrival arrival;
  arrival.client = client;
  arrival.figures.cached_tokens = held * block_tokens;
  arrival.figures.prefix_blocks_held = held;
  arrival.figures.kv_transport = "none";
  arrival.sequence = std::make_unique<engine::Sequence>(
      std::move(request),
      size,
      engine::BlockTable(std::move(blocks.prefix), std::move(blocks.own)),
      held * block_tokens);
  scheduler_.add(std::move(arrival));
  KvGrant none;
  none.node = identity_.name;
  none.incarnation = identity_.incarnation;
  none.lease = grants_.draw_lease();  // opens nothing: no bytes may come for it
  none.layout_hash = kv_.layout().hash();
  none.layout = kv_.layout();
  none.control_address = identity_.control_address;
  none.prefix_blocks = held;
  return none;
}

void Service::on_verified(std::unique_ptr<Grant> grant) {
  probe_.received(grant->landed.bytes);
  Scheduler::Arrival arrival;
  arrival.client = grant->client;
  arrival.deadline = grant->deadline;
  arrival.first_token = grant->committed.first_token;
  arrival.figures.prefix_blocks_held = grant->prefix.num_blocks();
  arrival.figures.kv_bytes_moved = grant->landed.bytes;
  arrival.figures.kv_transport = grant->landed.transport;
  arrival.figures.transfer_us = grant->committed.transfer_us;
  const std::uint32_t received = grant->size.context;
  arrival.sequence = std::make_unique<engine::Sequence>(
      std::move(grant->request),
      grant->size,
      engine::BlockTable(std::move(grant->prefix), std::move(grant->blocks)),
      received);
  scheduler_.add(std::move(arrival));
}

void Service::cancel(node::ClientId client, const wire::Cancel& message) {
  const RequestId request{message.request()};
  const Attempt attempt{message.attempt()};
  if (!grants_.cancel(client, request, attempt)) {
    scheduler_.cancel(client, request, attempt);
  }
}

void Service::on_client_lost(node::ClientId client) {
  grants_.client_lost(client);
  scheduler_.cancel_client(client);
}

}  // namespace baton::decode_node
