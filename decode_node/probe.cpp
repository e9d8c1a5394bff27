#include "decode_node/probe.h"

namespace baton::decode_node {
namespace {

Counter ended_counter(Metrics& metrics, const char* reason) {
  return metrics.counter(
      "baton_decode_ended_total", "Sequences that ended on this node", {{"reason", reason}});
}

Gauge grants_gauge(Metrics& metrics, const char* event) {
  return metrics.gauge(
      "baton_decode_grant_events", "What became of grants since the start", {{"event", event}});
}

}  // namespace

Probe::Probe(Metrics& metrics)
    : step_seconds_(metrics.histogram(
          "baton_decode_step_seconds", "Time of one decode step", latency_buckets())),
      batch_(metrics.histogram(
          "baton_decode_batch", "Sequences in a step", {1, 2, 4, 8, 16, 32, 64, 128, 256})),
      tokens_(metrics.counter("baton_decode_tokens_total", "Tokens sampled")),
      stopped_(ended_counter(metrics, "stop")),
      at_length_(ended_counter(metrics, "length")),
      cancelled_(ended_counter(metrics, "cancelled")),
      failed_(ended_counter(metrics, "error")),
      busy_(metrics.counter("baton_decode_busy_total", "Reserves answered by Busy")),
      received_(metrics.counter("baton_decode_kv_bytes_total",
                                "KV bytes of verified grants, counted as they landed")),
      running_(metrics.gauge("baton_decode_running", "Sequences on this node")),
      open_grants_(metrics.gauge("baton_decode_open_grants", "Grants waiting for their blocks")),
      quarantined_grants_(metrics.gauge("baton_decode_quarantined_grants",
                                        "Ended grants whose blocks may still be written")),
      granted_(grants_gauge(metrics, "granted")),
      verified_(grants_gauge(metrics, "verified")),
      revoked_(grants_gauge(metrics, "revoked")),
      expired_(grants_gauge(metrics, "expired")),
      refused_commits_(grants_gauge(metrics, "commit_refused")) {}

void Probe::step(double seconds, std::size_t batch) {
  step_seconds_.observe(seconds);
  batch_.observe(static_cast<double>(batch));
}

void Probe::ended(FinishReason reason) {
  switch (reason) {
    case FinishReason::Stop:
      stopped_.add();
      break;
    case FinishReason::Length:
      at_length_.add();
      break;
    case FinishReason::Cancelled:
      cancelled_.add();
      break;
    case FinishReason::Error:
      failed_.add();
      break;
    case FinishReason::None:
      break;
  }
}

void Probe::update(std::uint32_t running, const GrantTable& grants) {
  running_.set(running);
  open_grants_.set(grants.num_open());
  quarantined_grants_.set(grants.num_quarantined());
  const GrantStats& stats = grants.stats();
  granted_.set(static_cast<double>(stats.granted));
  verified_.set(static_cast<double>(stats.verified));
  revoked_.set(static_cast<double>(stats.revoked));
  expired_.set(static_cast<double>(stats.expired));
  refused_commits_.set(static_cast<double>(stats.refused_commits));
}

}  // namespace baton::decode_node
