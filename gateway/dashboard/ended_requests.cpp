#include "gateway/dashboard/ended_requests.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "common/json/json_escape.h"

namespace baton::gateway {

void EndedRequests::add(EndedRequest request) {
  kept_.push_front(std::move(request));
  if (kept_.size() > kKept) {
    kept_.pop_back();
  }
}

std::string EndedRequests::to_json() const {
  std::string out = "[";
  for (const EndedRequest& r : kept_) {
    const AnswerFigures& f = r.figures;
    out += out.size() > 1 ? ",{\"model\":" : "{\"model\":";
    append_json_string(out, r.model);
    out += ",\"prefill_node\":";
    append_json_string(out, f.prefill_node);
    out += ",\"decode_node\":";
    append_json_string(out, f.decode_node);
    out += ",\"transport\":";
    append_json_string(out, f.kv_transport);
    fmt::format_to(std::back_inserter(out),
                   ",\"id\":\"{:016x}\",\"tier\":\"{}\",\"how\":\"{}\",\"ended_unix_ms\":{},"
                   "\"queue_us\":{},\"prefill_us\":{},\"transfer_us\":{},\"ttft_us\":{},"
                   "\"total_us\":{},\"prompt_tokens\":{},\"cached_tokens\":{},\"output_tokens\":{},"
                   "\"kv_bytes\":{},\"max_batch\":{},\"attempts\":{},\"failovers\":{}}}",
                   r.id.value,
                   r.tier,
                   r.how,
                   r.ended_unix_ms,
                   f.queue.count(),
                   f.prefill.count(),
                   f.transfer.count(),
                   r.ttft_us,
                   r.total_us,
                   r.prompt_tokens,
                   f.cached_tokens,
                   r.output_tokens,
                   f.kv_bytes_moved,
                   f.max_batch,
                   f.attempts,
                   f.failovers);
  }
  return out + "]";
}

}  // namespace baton::gateway
