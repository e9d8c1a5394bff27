// The last requests that ended, for the dashboard and `baton trace`: who computed them, how long
// each phase took, how they ended. Never their text.
//
// Owner: the composition root. Thread: the control strand. Failure: none; the oldest go.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "gateway/requests/answer_sink.h"
#include "gateway/requests/request_trace.h"

namespace baton::gateway {

// Of a request that still runs: as far as it has come.
struct EndedRequest {
  RequestId id{};
  NodeName gateway;  // that served it
  std::string model;
  std::string_view tier;
  std::string_view how;            // finished, failed, cancelled; while it runs, its phase
  std::int64_t ended_unix_ms = 0;  // or, while it runs, now
  std::uint64_t ttft_us = 0;       // received to first token; 0: none came
  std::uint64_t total_us = 0;      // received to the end
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  AnswerFigures figures;
  RequestTrace trace;
};

// Of 16 hexadecimal digits, also behind a prefix as answers have it ("chatcmpl-").
std::optional<RequestId> parse_request_id(std::string_view text);
// An object with all there is to show of it.
std::string to_json(const EndedRequest& request);

class EndedRequests {
 public:
  static constexpr std::size_t kKept = 1024;
  static constexpr std::size_t kShown = 64;

  void add(EndedRequest request);
  // An array of up to kShown, the latest first.
  std::string to_json() const;
  // Null: none of this id is kept.
  const EndedRequest* find(RequestId id) const;
  // Of this trace, 32 hexadecimal digits: the latest.
  const EndedRequest* find_trace(std::string_view trace_id) const;

 private:
  std::deque<EndedRequest> kept_;  // the latest first
};

}  // namespace baton::gateway
