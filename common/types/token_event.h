// One step forward of one choice, as a node reports it to the gateway. The gateway orders events by
// `index`, drops repeated indices and older attempts: the first token (from prefill) and later ones
// (from decode) race on two connections. With FinishReason::Stop the stop token is the last of
// `tokens`: it is counted, and its text is not shown.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"

namespace baton {

enum class FinishReason : std::uint8_t { None = 0, Stop = 1, Length = 2, Cancelled = 3, Error = 4 };

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
};

// What a node measured for a request; sent with its last event on that node.
struct RequestFigures {
  std::uint32_t cached_tokens = 0;  // prompt tokens found in the prefix cache of the computing node
  std::uint32_t prefix_blocks_held = 0;  // leading blocks decode held already
  std::uint64_t kv_bytes_moved = 0;      // counted in decode's receive callback
  std::string kv_transport;              // the lane really used: tcp, shm, rc_verbs, none
  std::uint64_t queue_us = 0;
  std::uint64_t compute_us = 0;
  std::uint64_t transfer_us = 0;      // end of prefill to Commit
  std::uint32_t max_batch = 0;        // largest batch the request shared a step with
  std::uint32_t chunks = 0;           // prefill chunks it was computed in
  std::uint32_t pulled_tokens = 0;    // fetched from decode instead of computed; not cached_tokens
  std::uint32_t drafted_tokens = 0;   // guessed and checked
  std::uint32_t accepted_tokens = 0;  // of these, right: each saved a step
  NodeName node;
};

struct TokenEvent {
  RequestId request{};
  Attempt attempt{};
  std::uint32_t choice = 0;
  std::uint32_t index = 0;             // position in the output, from 0
  std::vector<TokenId> tokens;         // index, index + 1, …; empty only in a pure end or error
  std::vector<TokenLogprob> logprobs;  // one for each token when asked for
  std::vector<std::vector<TokenLogprob>> top_logprobs;
  // Of the prompt's tokens from the second on, with the event of the first output token, when asked
  // for.
  std::vector<TokenLogprob> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;
  FinishReason finish = FinishReason::None;
  std::optional<Error> error;  // with finish == Error
  bool refused = false;        // with an error: the node has taken nothing on
  std::optional<RequestFigures> figures;
};

}  // namespace baton
