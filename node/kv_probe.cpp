#include "node/kv_probe.h"

#include <unistd.h>

#include <fstream>

namespace baton::node {
namespace {

Gauge blocks(Metrics& metrics, const char* state) {
  return metrics.gauge("baton_kv_blocks", "KV blocks by state", {{"state", state}});
}

}  // namespace

KvProbe::KvProbe(Metrics& metrics)
    : total_(metrics.gauge("baton_kv_blocks_total", "KV blocks of the arena")),
      free_(blocks(metrics, "free")),
      in_use_(blocks(metrics, "in_use")),
      granted_(blocks(metrics, "granted")),
      quarantined_(blocks(metrics, "quarantined")),
      cached_(blocks(metrics, "cached")),
      prefix_hits_(metrics.gauge("baton_prefix_hit_blocks", "Blocks found in the prefix cache")),
      prefix_misses_(
          metrics.gauge("baton_prefix_missed_blocks", "Full blocks not found in the prefix cache")),
      prefix_evictions_(metrics.gauge("baton_prefix_evicted_blocks", "Blocks evicted from it")),
      bytes_sent_(metrics.gauge("baton_transfer_sent_bytes", "KV bytes sent")),
      bytes_received_(metrics.gauge("baton_transfer_received_bytes", "KV bytes received")),
      messages_dropped_(metrics.gauge("baton_transfer_dropped_messages",
                                      "Data messages refused: unknown lease, epoch or bounds")),
      sends_failed_(metrics.gauge("baton_transfer_failed_sends", "Sends that failed")),
      digest_mismatches_(metrics.gauge("baton_transfer_digest_mismatches",
                                       "Leases whose blocks were not those that were sent")),
      open_leases_(metrics.gauge("baton_transfer_open_leases", "Leases open for writing")),
      reactor_loops_(metrics.gauge("baton_transfer_reactor_loops", "Loops of the data thread")) {}

void KvProbe::update(const engine::KvMemory& kv, const transfer::TransportStats& transfer) {
  const engine::BlockPool& pool = kv.pool();
  total_.set(pool.total());
  free_.set(pool.free());
  in_use_.set(pool.count(engine::BlockUse::InUse));
  granted_.set(pool.count(engine::BlockUse::Granted));
  quarantined_.set(pool.count(engine::BlockUse::Quarantined));
  cached_.set(pool.count(engine::BlockUse::Cached));
  const auto& stats = kv.index().stats();
  prefix_hits_.set(static_cast<double>(stats.hit_blocks));
  prefix_misses_.set(static_cast<double>(stats.missed_blocks));
  prefix_evictions_.set(static_cast<double>(stats.evicted));
  bytes_sent_.set(static_cast<double>(transfer.bytes_sent));
  bytes_received_.set(static_cast<double>(transfer.bytes_received));
  messages_dropped_.set(static_cast<double>(transfer.messages_dropped));
  sends_failed_.set(static_cast<double>(transfer.sends_failed));
  digest_mismatches_.set(static_cast<double>(transfer.digest_mismatches));
  open_leases_.set(static_cast<double>(transfer.open_leases));
  reactor_loops_.set(static_cast<double>(transfer.loop_count));
}

void fill_load(wire::NodeLoad& load, const engine::KvMemory& kv) {
  const engine::BlockPool& pool = kv.pool();
  load.set_blocks_total(pool.total());
  load.set_blocks_free(kv.num_obtainable());
  load.set_blocks_granted(pool.count(engine::BlockUse::Granted));
  load.set_blocks_quarantined(pool.count(engine::BlockUse::Quarantined));
  load.set_blocks_in_use(pool.count(engine::BlockUse::InUse));
  load.set_blocks_cached(pool.count(engine::BlockUse::Cached));
  load.set_rss_bytes(resident_bytes());
}

void fill_ticks(wire::NodeLoad& load, transfer::Transport& transport) {
  load.set_reactor_ticks(transport.stats().loop_count);
  transport.poke();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  if (file >> total >> resident) {
    return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  return 0;
}

}  // namespace baton::node
