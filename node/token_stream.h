// Collects what a step says to each gateway and sends it as one TokenFrame a gateway.
//
// Owner: a node's role. Thread: control strand. Failure: none; events for a gateway that is gone
// are dropped by the sender.
#pragma once

#include <map>
#include <utility>

#include "common/types/token_event.h"
#include "node/client.h"

namespace baton::node {

class TokenStream {
 public:
  explicit TokenStream(FrameSender send) : send_(std::move(send)) {}

  void add(ClientId client, const TokenEvent& event);
  // Sends what was added since the last flush.
  void flush();
  // An event on its own, at once.
  void send_now(ClientId client, const TokenEvent& event);

 private:
  const FrameSender send_;
  std::map<ClientId, wire::TokenFrame> pending_;
};

// The end of a request by an error, with no token.
TokenEvent error_event(RequestId request, Attempt attempt, std::uint32_t choice, Error error);
// What was asked for is not taken on. The message may be broken: its numbers are told as they are.
TokenEvent refusal_event(const wire::GenerateRequest& request, Error error);

}  // namespace baton::node
