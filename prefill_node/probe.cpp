#include "prefill_node/probe.h"

namespace baton::prefill_node {
namespace {

Counter ended_counter(Metrics& metrics, const char* how) {
  return metrics.counter(
      "baton_prefill_ended_total", "Prefill requests that ended on this node", {{"how", how}});
}

Counter cancelled_counter(Metrics& metrics, const char* phase) {
  return metrics.counter("baton_prefill_cancelled_total",
                         "Requests cancelled by their gateway, by what they were doing",
                         {{"phase", phase}});
}

}  // namespace

Probe::Probe(Metrics& metrics)
    : step_seconds_(metrics.histogram(
          "baton_prefill_step_seconds", "Time of one prefill step", latency_buckets())),
      sequences_(metrics.histogram(
          "baton_prefill_step_sequences", "Prompts in a step", {1, 2, 4, 8, 16, 32})),
      tokens_(metrics.counter("baton_prefill_tokens_total", "Prompt tokens computed")),
      prompt_tokens_(metrics.counter("baton_prefill_prompt_tokens_total", "Prompt tokens asked")),
      cached_tokens_(metrics.counter("baton_prefill_cached_tokens_total",
                                     "Prompt tokens found in the prefix cache")),
      committed_(ended_counter(metrics, "committed")),
      bytes_(metrics.counter("baton_prefill_kv_bytes_total", "KV bytes of committed leases")),
      pulls_(metrics.counter("baton_prefill_pulls_total",
                             "Prefixes fetched from decode nodes instead of computed",
                             {{"how", "done"}})),
      pulls_failed_(metrics.counter("baton_prefill_pulls_total",
                                    "Prefixes fetched from decode nodes instead of computed",
                                    {{"how", "failed"}})),
      pulled_tokens_(
          metrics.counter("baton_prefill_pulled_tokens_total", "Prompt tokens fetched by pulls")),
      pulled_bytes_(
          metrics.counter("baton_prefill_pulled_bytes_total", "KV bytes fetched by pulls")),
      failed_(ended_counter(metrics, "failed")),
      drained_(ended_counter(metrics, "draining")),
      late_(ended_counter(metrics, "deadline")),
      cancelled_({cancelled_counter(metrics, "waiting"),
                  cancelled_counter(metrics, "computing"),
                  cancelled_counter(metrics, "delivering")}),
      busy_(metrics.counter("baton_prefill_busy_total", "Prefills refused as Busy")),
      waiting_(metrics.gauge("baton_prefill_waiting", "Requests waiting for blocks")),
      jobs_(metrics.gauge("baton_prefill_jobs", "Requests in work, transfers included")) {}

void Probe::step(double seconds, std::size_t sequences, std::uint32_t tokens) {
  step_seconds_.observe(seconds);
  sequences_.observe(static_cast<double>(sequences));
  tokens_.add(tokens);
}

void Probe::request(std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
  prompt_tokens_.add(prompt_tokens);
  cached_tokens_.add(cached_tokens);
}

void Probe::committed(std::uint64_t bytes) {
  committed_.add();
  bytes_.add(static_cast<double>(bytes));
}

void Probe::failed(ErrorCode why) {
  switch (why) {
    case ErrorCode::Draining:
      drained_.add();
      break;
    case ErrorCode::Timeout:
      late_.add();
      break;
    default:
      failed_.add();
  }
}

void Probe::pulled(std::uint32_t tokens, std::uint64_t bytes) {
  pulls_.add();
  pulled_tokens_.add(tokens);
  pulled_bytes_.add(static_cast<double>(bytes));
}

void Probe::update(std::size_t waiting, std::size_t jobs) {
  waiting_.set(static_cast<double>(waiting));
  jobs_.set(static_cast<double>(jobs));
}

}  // namespace baton::prefill_node
