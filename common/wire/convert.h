// Messages to values and back. What comes from a wire is foreign: every count, enum, id and number
// is checked here, so that nobody behind needs to.
//
// Thread: plain functions. Failure: ProtocolError that names the message and field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "common/types/request.h"
#include "common/types/token_event.h"
#include "common/wire/control.pb.h"

namespace baton {

// Most that a message may hold; far above what is used, far below what hurts.
struct WireLimits {
  static constexpr int kTokens = 1 << 20;  // prompt, output
  static constexpr int kStopTokens = 1024;
  static constexpr std::uint32_t kChoices = 128;
  static constexpr int kRuns = 1 << 16;
  static constexpr int kEventTokens = 4096;
  static constexpr int kTopLogprobs = 20;
  static constexpr std::size_t kGrammar = 1 << 20;
  static constexpr std::size_t kName = 256;        // model, node, address, lane
  static constexpr std::size_t kErrorText = 2048;  // longer ones are cut, not refused
  static constexpr std::uint64_t kDeadlineMs = 24ULL * 3600 * 1000;
  static constexpr std::uint64_t kTtlMs = 3600ULL * 1000;
};

// Tokens a prompt may have so that the log-probabilities of all, each with so many alternatives,
// fit one frame.
std::size_t max_scored_prompt(std::int32_t alternatives);

wire::KvLayout to_wire(const KvLayout& layout);
Result<KvLayout> from_wire(const wire::KvLayout& message);

wire::Sampling to_wire(const SamplingParams& sampling);
Result<SamplingParams> from_wire(const wire::Sampling& message);

wire::GenerateRequest to_wire(const GenerateRequest& request);
Result<GenerateRequest> from_wire(const wire::GenerateRequest& message);

wire::KvGrant to_wire(const KvGrant& grant);
Result<KvGrant> from_wire(const wire::KvGrant& message);

wire::Figures to_wire(const RequestFigures& figures);
Result<RequestFigures> from_wire(const wire::Figures& message);

wire::TokenEvent to_wire(const TokenEvent& event);
Result<TokenEvent> from_wire(const wire::TokenEvent& message);

// An error as the body of a refusing answer. `field` is optional.
wire::Refusal to_refusal(const Error& error, std::string_view field = {});
// The code as named; Internal for an unknown name.
Error from_refusal(const wire::Refusal& refusal);
// The inverse of to_string(ErrorCode); Internal for an unknown name.
ErrorCode error_code_from(std::string_view name);

// Text that a message may carry: whole UTF-8 (a broken byte becomes '?'; a message with one would
// be refused by the other side), at most kErrorText bytes.
std::string wire_text(std::string_view text);

// The lease of Commit, Abort and Quiesced.
template <class Message>
LeaseId lease_of(const Message& message) {
  return LeaseId{message.lease_high(), message.lease_low()};
}
template <class Message>
void set_lease(Message& message, const LeaseId& lease, Epoch epoch) {
  message.set_lease_high(lease.high);
  message.set_lease_low(lease.low);
  message.set_epoch(epoch.value);
}

}  // namespace baton
