#include "gateway/dashboard/request_phases.h"

#include <algorithm>

namespace baton::gateway {

std::vector<RequestPhase> phases_of(const EndedRequest& ended) {
  const AnswerFigures& f = ended.figures;
  const auto micros = [](std::chrono::microseconds time) {
    return static_cast<std::uint64_t>(time.count());
  };
  std::vector<RequestPhase> phases;
  const auto add = [&](const char* name,
                       const char* program,
                       const NodeName& node,
                       std::uint64_t from_us,
                       std::uint64_t to_us) {
    const std::uint64_t from = std::min(from_us, ended.total_us);
    phases.push_back({name, program, node, from, std::clamp(to_us, from, ended.total_us)});
  };
  const bool has_begun = f.attempts > 0;
  const std::uint64_t queue = has_begun ? micros(f.queue) : ended.total_us;
  add("queue", "baton-gateway", ended.gateway, 0, queue);
  if (!has_begun) {
    return phases;
  }
  const std::uint64_t computed = queue + micros(f.prefill);
  if (f.prefill.count() > 0) {
    const bool is_local = f.prefill_node == f.decode_node;
    add("prefill", is_local ? "baton-decode" : "baton-prefill", f.prefill_node, queue, computed);
  }
  if (f.kv_bytes_moved > 0) {
    add("transfer", "baton-prefill", f.prefill_node, computed, computed + micros(f.transfer));
  }
  std::uint64_t resumed = 0;
  for (const LostWork& lost : f.lost) {
    resumed = micros(lost.to);
    add(lost.was_decoding ? "decode" : "prefill",
        lost.by_decode_node ? "baton-decode" : "baton-prefill",
        lost.node,
        micros(lost.from),
        resumed);
  }
  if (ended.ttft_us > 0) {
    add("decode", "baton-decode", f.decode_node, std::max(ended.ttft_us, resumed), ended.total_us);
  }
  return phases;
}

}  // namespace baton::gateway
