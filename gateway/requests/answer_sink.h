// Where the tracker hands tokens of one request: the client's side of it.
//
// Sequence of events: on_tokens* -> on_end, exactly once.
//
// Thread: called on the control strand; an implementation hands on to its own thread. Failure:
// none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/types/token_event.h"
#include "gateway/http/api_error.h"

namespace baton::gateway {

// What a node did of an attempt that failed and was taken over.
struct LostWork {
  bool was_decoding = false;  // else the first token of the attempt had not come
  bool by_decode_node = false;
  NodeName node;
  std::chrono::microseconds from{0};  // after the request came
  std::chrono::microseconds to{0};
};

// What both nodes measured for a request, together.
struct AnswerFigures {
  NodeName prefill_node;
  NodeName decode_node;
  std::uint64_t kv_bytes_moved = 0;
  std::string kv_transport = "none";
  std::uint32_t prefix_blocks_held = 0;
  std::uint32_t pulled_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::chrono::microseconds queue{0};  // in the gateway's queue and the prefill node's
  std::chrono::microseconds prefill{0};
  std::chrono::microseconds transfer{0};
  std::uint32_t max_batch = 0;
  std::uint32_t chunks = 0;
  std::uint32_t drafted_tokens = 0;
  std::uint32_t accepted_tokens = 0;
  std::uint32_t attempts = 0;
  std::uint32_t failovers = 0;  // attempts that failed and were taken over by another
  std::vector<LostWork> lost;   // of those
};

struct AnswerEnd {
  FinishReason finish = FinishReason::None;  // Stop, Length, or Error with `error`
  std::optional<ApiError> error;
  AnswerFigures figures;
};

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // In order and without repeats; `finish` of the event is not the end, `on_end` is.
  virtual void on_tokens(TokenEvent event) = 0;
  virtual void on_end(AnswerEnd end) = 0;
};

}  // namespace baton::gateway
