#include "decode_node/service.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"
#include "node/asked.h"

namespace baton::decode_node {

Service::Service(Parts parts, DecodeSection config)
    : parts_(std::move(parts)), config_(std::move(config)) {}

void Service::on_frame(node::ClientId client, Channel& channel, wire::Frame frame) {
  switch (frame.body_case()) {
    case wire::Frame::kReserve: {
      wire::Reserve& message = *frame.mutable_reserve();
      if (const Status taken = reserve(client, channel, message); !taken) {
        if (taken.error().code == ErrorCode::Busy) {
          parts_.probe.busy();
        }
        if (taken.error().code == ErrorCode::Busy || taken.error().code == ErrorCode::NoBlocks) {
          refused_.insert(client);
        }
        parts_.stream.send_now(client, node::refusal_event(message.request(), taken.error()));
        return;
      }
      ++num_taken_;
      return;
    }
    case wire::Frame::kCancel:
      cancel(client, frame.cancel());
      return;
    case wire::Frame::kArtifactRequest:
      parts_.artifacts.answer(channel, frame);
      return;
    case wire::Frame::kDrain:
      parts_.drain.answer(channel, frame);
      return;
    default:
      channel.answer_error(
          frame, {ErrorCode::ProtocolError, "a decode node takes no such message from a gateway"});
  }
}

Status Service::reserve(node::ClientId client, Channel& channel, wire::Reserve& message) {
  BATON_TRY(parts_.drain.check_open());
  BATON_ASSIGN(node::Asked asked,
               node::read_request(message.request(), parts_.identity, parts_.log));
  // Grants count: a sequence whose blocks arrive must find a place in the batch.
  const std::uint32_t in_work = parts_.scheduler.num_running() + parts_.grants.num_open();
  if (in_work >= parts_.scheduler.batch_limit()) {
    return fail(ErrorCode::Busy,
                fmt::format("node {} has {} requests in work, its limit; retry when one has ended",
                            parts_.identity.name,
                            in_work));
  }
  // Each request that may outgrow its blocks keeps one block away from newcomers.
  const GrantTable::Terms terms{
      .output_tokens = message.reserve_full() ? 0 : config_.expected_output_tokens,
      .headroom = parts_.scheduler.num_growing() + parts_.grants.num_growing()};
  if (message.local()) {
    return reserve_local(client, std::move(asked.request), asked.size, terms);
  }
  const Grammar grammar = asked.request.grammar;
  BATON_ASSIGN(const KvGrant grant,
               parts_.grants.grant(client, std::move(asked.request), asked.size, terms));
  hand_on(client, channel, message, grant);
  parts_.scheduler.expect(grammar);  // compiled while the prompt is computed elsewhere
  return {};
}

void Service::hand_on(node::ClientId client,
                      Channel& channel,
                      wire::Reserve& message,
                      const KvGrant& grant) {
  const WriterId writer =
      parts_.writers.find(message.prefill_node(), Incarnation{message.prefill_incarnation()});
  const node::GatewayLife* gateway = parts_.life_of(client);
  wire::Frame frame;
  if (writer == WriterId{} || gateway == nullptr) {
    wire::Granted& granted = *frame.mutable_granted();
    *granted.mutable_grant() = to_wire(grant);
    granted.set_request(message.request().id());
    granted.set_attempt(message.request().attempt());
    channel.send(std::move(frame));
    return;
  }
  // From now on the grant ends with that connection, and an Abort follows the request on it.
  parts_.grants.renew(writer, grant.lease, grant.epoch);
  wire::Prefill& prefill = *frame.mutable_prefill();
  prefill.mutable_request()->Swap(message.mutable_request());
  *prefill.mutable_grant() = to_wire(grant);
  prefill.set_gateway(gateway->name);
  prefill.set_gateway_incarnation(gateway->incarnation.value);
  parts_.writers.send(writer, std::move(frame));
}

Status Service::reserve_local(node::ClientId client,
                              GenerateRequest request,
                              const engine::RequestSize& size,
                              const GrantTable::Terms& terms) {
  const std::uint32_t block_tokens = parts_.kv.layout().block_tokens;
  // The last token is always computed: its result gives the first new one. So is every token whose
  // log-probability is asked for.
  const std::uint32_t max_prefix =
      engine::wants_prompt_logprobs(request) ? 0 : (size.context - 1) / block_tokens;
  const std::uint32_t cached =
      parts_.kv.index().peek(engine::context_of(request), max_prefix) * block_tokens;
  // A resumed request has grown; where it was taken by its prompt, it is taken again.
  if (size.context - cached > config_.local_prefill_max_tokens &&
      request.prompt.size() > config_.local_prefill_max_tokens) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} tokens are to be prefilled and node {} takes up to {} "
                            "(decode.local_prefill_max_tokens)",
                            size.context - cached,
                            parts_.identity.name,
                            config_.local_prefill_max_tokens));
  }
  BATON_ASSIGN(GrantTable::Blocks blocks,
               parts_.grants.take_blocks(request, size, max_prefix, terms));
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
  parts_.scheduler.add(std::move(arrival));
  return {};
}

void Service::on_verified(std::unique_ptr<Grant> grant) {
  parts_.probe.received(grant->landed.bytes);
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
  parts_.scheduler.add(std::move(arrival));
}

void Service::cancel(node::ClientId client, const wire::Cancel& message) {
  const RequestId request{message.request()};
  const Attempt attempt{message.attempt()};
  if (!parts_.grants.cancel(client, request, attempt)) {
    parts_.scheduler.cancel(client, request, attempt);
  }
}

void Service::on_room() {
  for (const node::ClientId client : std::exchange(refused_, {})) {
    parts_.tell_load(client);
  }
}

void Service::on_client_lost(node::ClientId client) {
  refused_.erase(client);
  parts_.grants.client_lost(client);
  parts_.scheduler.cancel_client(client);
}

}  // namespace baton::decode_node
