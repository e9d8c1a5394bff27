// Metrics that both roles have: blocks by use, prefix cache, engine steps, data plane.
//
// Owner: a node's role. Thread: control strand writes; the exporter reads. Failure: none.
#pragma once

#include <cstdint>

#include "common/obs/metrics.h"
#include "common/wire/control.pb.h"
#include "engine/kv/kv_memory.h"
#include "node/role.h"
#include "transfer/transport.h"

namespace baton::node {

class KvProbe {
 public:
  explicit KvProbe(const RoleDeps& deps);
  KvProbe(const KvProbe&) = delete;
  KvProbe& operator=(const KvProbe&) = delete;
  ~KvProbe();
  // Copies the present state into the metrics.
  void update(const transfer::TransportStats& transfer);

 private:
  KvProbe(const RoleDeps& deps, Metrics& metrics);
  void update_prefixes();
  void update_tier();

  engine::KvMemory& kv_;
  const engine::FileTier* const tier_;  // null: there is none
  engine::PrefixIndex::Stats told_;     // what the counters say
  engine::FileTier::Stats tier_told_;
  Gauge total_;
  Gauge free_;
  Gauge in_use_;
  Gauge granted_;
  Gauge quarantined_;
  Gauge cached_;
  Gauge usage_;
  Counter prefix_queries_;
  Counter prefix_hits_;
  Counter prefix_lookups_;
  Counter prefix_stored_;
  Counter prefix_evicted_;
  Histogram prefix_idle_;
  Gauge tier_blocks_;
  Counter tier_queries_;
  Counter tier_hits_;
  Counter tier_stored_;
  Counter tier_broken_;
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
