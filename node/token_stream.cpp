#include "node/token_stream.h"

#include "common/wire/convert.h"

namespace baton::node {

void TokenStream::add(ClientId client, const TokenEvent& event) {
  *pending_[client].add_events() = to_wire(event);
}

void TokenStream::flush() {
  for (auto& [client, events] : pending_) {
    wire::Frame frame;
    *frame.mutable_tokens() = std::move(events);
    send_(client, std::move(frame));
  }
  pending_.clear();
}

void TokenStream::send_now(ClientId client, const TokenEvent& event) {
  wire::Frame frame;
  *frame.mutable_tokens()->add_events() = to_wire(event);
  send_(client, std::move(frame));
}

TokenEvent error_event(RequestId request, Attempt attempt, std::uint32_t choice, Error error) {
  TokenEvent event;
  event.request = request;
  event.attempt = attempt;
  event.choice = choice;
  event.finish = FinishReason::Error;
  event.error = std::move(error);
  return event;
}

TokenEvent refusal_event(const wire::GenerateRequest& request, Error error) {
  TokenEvent event =
      error_event(RequestId{request.id()}, Attempt{request.attempt()}, 0, std::move(error));
  event.refused = true;
  return event;
}

}  // namespace baton::node
