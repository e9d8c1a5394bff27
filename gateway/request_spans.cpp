#include "gateway/request_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::gateway {
namespace {

constexpr std::int64_t kNanosPerMs = 1'000'000;
constexpr std::int64_t kNanosPerUs = 1'000;

std::int64_t number(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

class Maker {
 public:
  explicit Maker(const EndedRequest& ended)
      : ended_(ended),
        end_(ended.ended_unix_ms * kNanosPerMs),
        begin_(end_ - number(ended.total_us) * kNanosPerUs) {}

  std::vector<Span> run() {
    const AnswerFigures& f = ended_.figures;
    request();
    const bool has_begun = f.attempts > 0;
    const std::int64_t queue = has_begun ? f.queue.count() : number(ended_.total_us);
    phase("queue", "baton-gateway", "gateway", 0, queue);
    if (!has_begun) {
      return std::move(spans_);
    }
    const std::int64_t computed = queue + f.prefill.count();
    if (f.prefill.count() > 0) {
      const bool is_local = f.prefill_node == f.decode_node;
      phase("prefill", is_local ? "baton-decode" : "baton-prefill", f.prefill_node, queue, computed)
          .attributes = {{"baton.chunks", std::int64_t{f.chunks}},
                         {"baton.cached_tokens", std::int64_t{f.cached_tokens}},
                         {"baton.pulled_tokens", std::int64_t{f.pulled_tokens}}};
    }
    if (f.kv_bytes_moved > 0) {
      phase("transfer", "baton-prefill", f.prefill_node, computed, computed + f.transfer.count())
          .attributes = {{"baton.kv_bytes", number(f.kv_bytes_moved)},
                         {"baton.kv_transport", f.kv_transport}};
    }
    if (ended_.ttft_us > 0) {
      phase(
          "decode", "baton-decode", f.decode_node, number(ended_.ttft_us), number(ended_.total_us))
          .attributes = {{"gen_ai.usage.output_tokens", std::int64_t{ended_.output_tokens}},
                         {"baton.max_batch", std::int64_t{f.max_batch}}};
    }
    return std::move(spans_);
  }

 private:
  void request() {
    Span& span = add("gateway", "baton-gateway", "gateway");
    span.id = ended_.trace.context.span;
    span.parent = ended_.trace.parent;
    span.kind = Span::Kind::Server;
    span.start_unix_ns = begin_;
    span.end_unix_ns = end_;
    span.attributes = {{"gen_ai.operation.name", "text_completion"},
                       {"gen_ai.response.model", ended_.model},
                       {"gen_ai.usage.input_tokens", std::int64_t{ended_.prompt_tokens}},
                       {"gen_ai.usage.output_tokens", std::int64_t{ended_.output_tokens}},
                       {"baton.request", fmt::format("{:016x}", ended_.id.value)},
                       {"baton.tier", std::string(ended_.tier)},
                       {"baton.end", std::string(ended_.how)},
                       {"baton.attempts", std::int64_t{ended_.figures.attempts}},
                       {"baton.failovers", std::int64_t{ended_.figures.failovers}}};
    if (ended_.how == "failed") {
      span.error = ended_.how;
    }
  }

  // Between two times in microseconds after the request came, inside of it.
  Span& phase(const char* name,
              const char* service,
              const std::string& instance,
              std::int64_t from_us,
              std::int64_t to_us) {
    Span& span = add(name, service, instance);
    span.id = ended_.trace.context.span + 2 * spans_.size();
    span.parent = ended_.trace.context.span;
    span.start_unix_ns = std::min(end_, begin_ + from_us * kNanosPerUs);
    span.end_unix_ns = std::clamp(begin_ + to_us * kNanosPerUs, span.start_unix_ns, end_);
    return span;
  }

  Span& add(const char* name, const char* service, const std::string& instance) {
    Span& span = spans_.emplace_back();
    span.trace_id = ended_.trace.context.trace_id();
    span.name = name;
    span.service = service;
    span.instance = instance;
    return span;
  }

  const EndedRequest& ended_;
  const std::int64_t end_;
  const std::int64_t begin_;
  std::vector<Span> spans_;
};

}  // namespace

std::vector<Span> spans_of(const EndedRequest& ended) {
  return Maker(ended).run();
}

}  // namespace baton::gateway
