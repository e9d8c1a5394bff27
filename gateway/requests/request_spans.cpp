#include "gateway/requests/request_spans.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "gateway/dashboard/request_phases.h"

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
    request();
    for (const RequestPhase& phase : phases_of(ended_)) {
      Span& span = add(phase.name, phase.program, phase.node);
      span.id = ended_.trace.context.span + 2 * spans_.size();
      span.parent = ended_.trace.context.span;
      span.start_unix_ns = begin_ + number(phase.from_us) * kNanosPerUs;
      span.end_unix_ns = begin_ + number(phase.to_us) * kNanosPerUs;
      span.attributes = attributes(phase.name);
    }
    return std::move(spans_);
  }

 private:
  std::vector<std::pair<std::string, Span::Value>> attributes(std::string_view phase) const {
    const AnswerFigures& f = ended_.figures;
    if (phase == "prefill") {
      return {{"baton.chunks", std::int64_t{f.chunks}},
              {"baton.cached_tokens", std::int64_t{f.cached_tokens}},
              {"baton.pulled_tokens", std::int64_t{f.pulled_tokens}}};
    }
    if (phase == "transfer") {
      return {{"baton.kv_bytes", number(f.kv_bytes_moved)}, {"baton.kv_transport", f.kv_transport}};
    }
    if (phase == "decode") {
      return {{"gen_ai.usage.output_tokens", std::int64_t{ended_.output_tokens}},
              {"baton.max_batch", std::int64_t{f.max_batch}}};
    }
    return {};
  }

  void request() {
    Span& span = add("gateway", "baton-gateway", ended_.gateway);
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
