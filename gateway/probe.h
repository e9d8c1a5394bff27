// What the gateway counts and times; names and bucket edges follow vLLM's where a figure is the
// same, so that dashboards made for it can be used.
//
// Owner: the composition root. Thread: any. Failure: none.
#pragma once

#include <array>
#include <string>

#include "common/config/gateway_section.h"
#include "common/config/slo_section.h"
#include "common/obs/metrics.h"
#include "gateway/failover.h"
#include "gateway/phase.h"
#include "gateway/waiting_on.h"

namespace baton::gateway {

struct Probe {
  Probe() = default;  // counts nothing: for tests
  // Targets are edges of the histograms, so that what keeps them is counted exactly.
  explicit Probe(Metrics& metrics, const SloSection& slo = {});

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
  std::array<Histogram, kNumTiers> ttft, itl;  // by tier
  Histogram e2e, queue_time;
  // Of requests with a prefill node of their own: wait for nodes by whom they waited for, the
  // prompt on its node with that node's queue, end of prefill to the commit.
  std::array<Histogram, kWaitingOnNames.size()> queue;
  Histogram prefill, transfer;
  Gauge queue_depth, in_work;
  std::array<Gauge, kNumTiers> waiting;  // by tier
};

}  // namespace baton::gateway
