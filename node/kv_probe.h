// Metrics that both roles have: blocks by use, prefix cache, engine steps, data plane.
//
// Owner: a node's role. Thread: control strand writes; the exporter reads. Failure: none.
#pragma once

#include <cstdint>

#include "common/obs/metrics.h"
#include "common/wire/control.pb.h"
#include "engine/kv/kv_memory.h"
#include "transfer/transport.h"

namespace baton::node {

class KvProbe {
 public:
  explicit KvProbe(Metrics& metrics);
  // Copies the present state into the gauges.
  void update(const engine::KvMemory& kv, const transfer::TransportStats& transfer);

 private:
  Gauge total_;
  Gauge free_;
  Gauge in_use_;
  Gauge granted_;
  Gauge quarantined_;
  Gauge cached_;
  Gauge prefix_hits_;
  Gauge prefix_misses_;
  Gauge prefix_evictions_;
  Gauge bytes_sent_;
  Gauge bytes_received_;
  Gauge messages_dropped_;
  Gauge sends_failed_;
  Gauge digest_mismatches_;
  Gauge open_leases_;
  Gauge reactor_loops_;
};

// The part of a node's load that both roles fill alike.
void fill_load(wire::NodeLoad& load, const engine::KvMemory& kv);

// The data thread's loops, for a heartbeat; pokes it, so that the next heartbeat says more even
// when there is nothing to send.
void fill_ticks(wire::NodeLoad& load, transfer::Transport& transport);

// Resident memory of this process; 0 when the system does not say.
std::uint64_t resident_bytes();

}  // namespace baton::node
