// What the gateway counts and times; names and bucket edges follow vLLM's where a figure is the
// same, so that dashboards made for it can be used.
//
// Owner: the composition root. Thread: any. Failure: none.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "common/config/gateway_section.h"
#include "common/config/slo_section.h"
#include "common/obs/metrics.h"
#include "gateway/requests/failover.h"
#include "gateway/requests/phase.h"
#include "gateway/requests/waiting_on.h"

namespace baton::gateway {

// Of the requests of one model.
struct ModelProbe {
  std::array<Histogram, kNumTiers> ttft, itl, e2e;  // by tier
  Counter prompt_tokens, generated_tokens;
};

struct Probe {
  Probe() = default;  // counts nothing: for tests
  // Targets are edges of the histograms, so that what keeps them is counted exactly.
  explicit Probe(Metrics& metrics, const SloSection& slo = {});

  // Of a model that nodes serve: no other name may be asked for. Thread: the control strand alone.
  const ModelProbe& of(const std::string& model) const;

  // The targets, beside what is measured.
  void show(const SloSection& slo) const;
  // One request at its end.
  void ended(Phase phase) const;
  void failover(FailoverReason reason) const { failovers[static_cast<std::size_t>(reason)].add(); }

  Counter finished, failed, cancelled;
  Counter refused;        // queue full, too late for its deadline, shutting down
  Counter refused_early;  // of those: at the door, since it would come too late
  Counter refused_late;   // of those: from the queue, when that was certain
  Counter disconnects;
  Counter failed_attempts, reserve_busy;
  std::array<Counter, kNumFailoverReasons> failovers;  // by reason
  Counter resumed_tokens;
  Counter stale_events, bad_events;
  Histogram queue_time;
  // Of requests with a prefill node of their own: wait for nodes by whom they waited for, the
  // prompt on its node with that node's queue, end of prefill to the commit.
  std::array<Histogram, kWaitingOnNames.size()> queue;
  Histogram prefill, transfer;
  Gauge queue_depth, in_work;
  std::array<Gauge, kNumTiers> waiting;  // by tier
  std::array<Gauge, kNumTiers> ttft_target, itl_target;
  Gauge queue_target, prefill_target, transfer_target;

 private:
  struct Models;  // made when first asked for
  std::shared_ptr<Models> models_;
  ModelProbe none_;
};

}  // namespace baton::gateway
