#include "gateway/dashboard/ended_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "common/json/json_escape.h"
#include "gateway/dashboard/request_phases.h"

namespace baton::gateway {

std::optional<RequestId> parse_request_id(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  text.remove_prefix(std::min(text.find_last_of("-_") + 1, text.size()));
  std::uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != kDigits || fault != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return RequestId(value);
}

std::string to_json(const EndedRequest& r) {
  const AnswerFigures& f = r.figures;
  std::string out = "{\"model\":";
  append_json_string(out, r.model);
  out += ",\"prefill_node\":";
  append_json_string(out, f.prefill_node);
  out += ",\"decode_node\":";
  append_json_string(out, f.decode_node);
  out += ",\"transport\":";
  append_json_string(out, f.kv_transport);
  fmt::format_to(std::back_inserter(out),
                 ",\"id\":\"{:016x}\",\"trace_id\":\"{}\",\"tier\":\"{}\",\"how\":\"{}\","
                 "\"ended_unix_ms\":{},\"ttft_us\":{},\"total_us\":{},\"prompt_tokens\":{},"
                 "\"cached_tokens\":{},\"output_tokens\":{},\"kv_bytes\":{},\"max_batch\":{},"
                 "\"chunks\":{},\"attempts\":{},\"failovers\":{},\"phases\":[",
                 r.id.value,
                 r.trace.context.span != 0 ? r.trace.context.trace_id() : "",
                 r.tier,
                 r.how,
                 r.ended_unix_ms,
                 r.ttft_us,
                 r.total_us,
                 r.prompt_tokens,
                 f.cached_tokens,
                 r.output_tokens,
                 f.kv_bytes_moved,
                 f.max_batch,
                 f.chunks,
                 f.attempts,
                 f.failovers);
  const char* comma = "";
  for (const RequestPhase& phase : phases_of(r)) {
    fmt::format_to(std::back_inserter(out),
                   "{}{{\"name\":\"{}\",\"from_us\":{},\"to_us\":{},\"node\":",
                   std::exchange(comma, ","),
                   phase.name,
                   phase.from_us,
                   phase.to_us);
    append_json_string(out, phase.node);
    out += '}';
  }
  return out + "]}";
}

void EndedRequests::add(EndedRequest request) {
  kept_.push_front(std::move(request));
  if (kept_.size() > kKept) {
    kept_.pop_back();
  }
}

std::string EndedRequests::to_json() const {
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(kShown, kept_.size()); ++i) {
    out += i == 0 ? "" : ",";
    out += gateway::to_json(kept_[i]);
  }
  return out + "]";
}

const EndedRequest* EndedRequests::find(RequestId id) const {
  const auto found = std::ranges::find(kept_, id, &EndedRequest::id);
  return found == kept_.end() ? nullptr : &*found;
}

const EndedRequest* EndedRequests::find_trace(std::string_view trace_id) const {
  const auto found = std::ranges::find_if(kept_, [&](const EndedRequest& request) {
    return request.trace.context.span != 0 && request.trace.context.trace_id() == trace_id;
  });
  return found == kept_.end() ? nullptr : &*found;
}

}  // namespace baton::gateway
