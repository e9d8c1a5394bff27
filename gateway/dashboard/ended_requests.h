// The last requests that ended, for the dashboard: who computed them, how long each phase took, how
// they ended. Never their text.
//
// Owner: the composition root. Thread: the control strand. Failure: none; the oldest go.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "gateway/answer_sink.h"
#include "gateway/request_trace.h"

namespace baton::gateway {

struct EndedRequest {
  RequestId id{};
  std::string model;
  std::string_view tier;
  std::string_view how;  // finished, failed, cancelled
  std::int64_t ended_unix_ms = 0;
  std::uint64_t ttft_us = 0;   // received to first token; 0: none came
  std::uint64_t total_us = 0;  // received to the end
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  AnswerFigures figures;
  RequestTrace trace;
};

class EndedRequests {
 public:
  void add(EndedRequest request);
  // An array, the latest first.
  std::string to_json() const;

 private:
  static constexpr std::size_t kKept = 64;
  std::deque<EndedRequest> kept_;
};

}  // namespace baton::gateway
