// What the gateway counts and times; names and bucket edges follow vLLM's where a figure is the
// same, so that dashboards made for it can be used.
//
// Owner: the composition root. Thread: any. Failure: none.
#pragma once

#include <array>
#include <string>

#include "common/config/gateway_section.h"
#include "common/obs/metrics.h"
#include "gateway/failover.h"
#include "gateway/phase.h"

namespace baton::gateway {

struct Probe {
  Probe() = default;  // counts nothing: for tests
  explicit Probe(Metrics& metrics);

  // One request at its end.
  void ended(Phase phase, double seconds, std::size_t prompt_tokens) const;
  void failover(FailoverReason reason) const { failovers[static_cast<std::size_t>(reason)].add(); }

  Counter finished, failed, cancelled;
  Counter refused;        // at the door: queue full, too late for its deadline, shutting down
  Counter refused_early;  // of those: too late
  Counter disconnects;
  Counter failed_attempts, reserve_busy;
  std::array<Counter, kNumFailoverReasons> failovers;  // by reason
  Counter resumed_tokens;
  Counter stale_events, bad_events;
  Counter prompt_tokens, generated_tokens;
  Histogram ttft, itl, e2e, queue_time;
  Gauge queue_depth, in_work;
  std::array<Gauge, kNumTiers> waiting;  // by tier
};

}  // namespace baton::gateway
