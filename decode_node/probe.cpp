#include "decode_node/probe.h"

namespace baton::decode_node {
namespace {

Counter ended_counter(Metrics& metrics, const char* reason) {
  return metrics.counter(
      "baton_decode_ended_total", "Sequences that ended on this node", {{"reason", reason}});
}

Counter cancelled_counter(Metrics& metrics, const char* phase) {
  return metrics.counter("baton_decode_cancelled_total",
                         "Requests cancelled by their gateway, by what they were doing",
                         {{"phase", phase}});
}

Counter pull_counter(Metrics& metrics, const char* how) {
  return metrics.counter(
      "baton_decode_pulls_total", "Prefixes that prefill nodes asked for", {{"how", how}});
}

Gauge grants_gauge(Metrics& metrics, const char* event) {
  return metrics.gauge(
      "baton_decode_grant_events", "What became of grants since the start", {{"event", event}});
}

}  // namespace

CancelPhase phase_of(GrantState state) {
  switch (state) {
    case GrantState::Landing:
      return CancelPhase::Landing;
    case GrantState::Fencing:
      return CancelPhase::Fencing;
    default:
      return CancelPhase::Granted;
  }
}

Probe::Probe(Metrics& metrics)
    : step_seconds_(metrics.histogram(
          "baton_decode_step_seconds", "Time of one decode step", latency_buckets())),
      batch_(metrics.histogram(
          "baton_decode_batch", "Sequences in a step", {1, 2, 4, 8, 16, 32, 64, 128, 256})),
      tokens_(metrics.counter("baton_decode_tokens_total", "Tokens sampled")),
      drafted_(metrics.counter("baton_decode_drafted_tokens_total",
                               "Tokens guessed and checked by a step")),
      accepted_(
          metrics.counter("baton_decode_accepted_tokens_total",
                          "Guessed tokens that were right: steps saved, each of one sequence")),
      sat_out_(metrics.counter("baton_decode_late_masks_total",
                               "Steps that a sequence sat out since its grammar's mask was late")),
      stopped_(ended_counter(metrics, "stop")),
      at_length_(ended_counter(metrics, "length")),
      cancelled_({cancelled_counter(metrics, "granted"),
                  cancelled_counter(metrics, "landing"),
                  cancelled_counter(metrics, "fencing"),
                  cancelled_counter(metrics, "prefilling"),
                  cancelled_counter(metrics, "decoding")}),
      failed_(ended_counter(metrics, "error")),
      preempted_(ended_counter(metrics, "preempted")),
      drained_(ended_counter(metrics, "draining")),
      late_(ended_counter(metrics, "deadline")),
      busy_(metrics.counter("baton_decode_busy_total", "Reserves refused as Busy")),
      received_(metrics.counter("baton_decode_kv_bytes_total",
                                "KV bytes of verified grants, counted as they landed")),
      pulls_served_(pull_counter(metrics, "served")),
      pulls_refused_(pull_counter(metrics, "refused")),
      pulled_bytes_(metrics.counter("baton_decode_pulled_bytes_total",
                                    "KV bytes of prefixes sent to prefill nodes")),
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
    case FinishReason::Error:
    case FinishReason::None:
      break;
  }
}

void Probe::handed_back(ErrorCode why) {
  switch (why) {
    case ErrorCode::Preempted:
      preempted_.add();
      break;
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

void Probe::pull_served(std::uint64_t bytes) {
  pulls_served_.add();
  pulled_bytes_.add(static_cast<double>(bytes));
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
