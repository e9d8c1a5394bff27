#include "node/kv_probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace baton::node {
namespace {

Gauge blocks(Metrics& metrics, const char* state) {
  return metrics.gauge("baton_kv_blocks", "KV blocks by state", {{"state", state}});
}

// As vLLM's own have, and the role, since both roles of a cluster are scraped.
Metrics::Labels vllm_labels(const NodeIdentity& identity) {
  return {{"model_name", identity.model.id()}, {"role", identity.role}};
}

// vLLM's names for what a role's own probe counts.
void add_vllm_names(Metrics& metrics, const NodeIdentity& identity) {
  const auto same = [&](const char* name, const char* of, const Metrics::Labels& where = {}) {
    metrics.also_as({.name = name, .of = of, .where = where, .labels = vllm_labels(identity)});
  };
  if (identity.role == "prefill") {
    same("vllm:num_requests_running", "baton_prefill_jobs");
    same("vllm:num_requests_waiting", "baton_prefill_waiting");
    same("vllm:prompt_tokens_total", "baton_prefill_prompt_tokens_total");
    same("vllm:prompt_tokens_cached_total", "baton_prefill_cached_tokens_total");
  } else {
    same("vllm:num_requests_running", "baton_decode_running");
    same("vllm:num_requests_waiting", "baton_decode_open_grants");
    same("vllm:generation_tokens_total", "baton_decode_tokens_total");
    same("vllm:num_preemptions_total", "baton_decode_ended_total", {{"reason", "preempted"}});
    for (const char* reason : {"stop", "length", "error"}) {
      metrics.also_as({.name = "vllm:request_success_total",
                       .of = "baton_decode_ended_total",
                       .where = {{"reason", reason}},
                       .labels = {{"finished_reason", reason},
                                  {"model_name", identity.model.id()},
                                  {"role", identity.role}}});
    }
  }
}

// What the Gateway API's inference extension reads of an engine.
void tell_cache_config(const RoleDeps& deps) {
  Metrics::Labels labels = vllm_labels(deps.identity);
  labels["block_size"] = std::to_string(deps.kv.layout().block_tokens);
  labels["num_gpu_blocks"] = std::to_string(deps.kv.pool().total());
  deps.metrics
      .gauge("vllm:cache_config_info", "1; the size of the KV cache is in the labels", labels)
      .set(1);
}

void add(const Counter& counter, std::uint64_t now, std::uint64_t told) {
  counter.add(static_cast<double>(now - told));
}

}  // namespace

KvProbe::KvProbe(const RoleDeps& deps) : KvProbe(deps, deps.metrics) {}

KvProbe::KvProbe(const RoleDeps& deps, Metrics& metrics)
    : kv_(deps.kv),
      tier_(deps.tier),
      total_(metrics.gauge("baton_kv_blocks_total", "KV blocks of the arena")),
      free_(blocks(metrics, "free")),
      in_use_(blocks(metrics, "in_use")),
      granted_(blocks(metrics, "granted")),
      quarantined_(blocks(metrics, "quarantined")),
      cached_(blocks(metrics, "cached")),
      usage_(metrics.gauge("vllm:kv_cache_usage_perc",
                           "Share of the KV blocks that are neither free nor evictable, 0 to 1",
                           vllm_labels(deps.identity))),
      prefix_queries_(metrics.counter("vllm:prefix_cache_queries_total",
                                      "Tokens of requests that looked into the prefix cache",
                                      vllm_labels(deps.identity))),
      prefix_hits_(metrics.counter("vllm:prefix_cache_hits_total",
                                   "Of these, tokens that were found",
                                   vllm_labels(deps.identity))),
      prefix_lookups_(metrics.counter("baton_prefix_lookups_total",
                                      "Requests that looked into the prefix cache")),
      prefix_stored_(metrics.counter("baton_prefix_stored_blocks_total",
                                     "Blocks that entered the prefix cache")),
      prefix_evicted_(metrics.counter("baton_prefix_evicted_blocks_total",
                                      "Blocks that were evicted from the prefix cache")),
      prefix_idle_(
          metrics.histogram("baton_prefix_idle_at_eviction_seconds",
                            "How long evicted blocks had not been used",
                            {0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3'600, 14'400, 86'400})),
      bytes_sent_(metrics.gauge("baton_transfer_sent_bytes", "KV bytes sent")),
      bytes_received_(metrics.gauge("baton_transfer_received_bytes", "KV bytes received")),
      messages_dropped_(metrics.gauge("baton_transfer_dropped_messages",
                                      "Data messages refused: unknown lease, epoch or bounds")),
      sends_failed_(metrics.gauge("baton_transfer_failed_sends", "Sends that failed")),
      digest_mismatches_(metrics.gauge("baton_transfer_digest_mismatches",
                                       "Leases whose blocks were not those that were sent")),
      open_leases_(metrics.gauge("baton_transfer_open_leases", "Leases open for writing")),
      reactor_loops_(metrics.gauge("baton_transfer_reactor_loops", "Loops of the data thread")) {
  add_vllm_names(metrics, deps.identity);
  tell_cache_config(deps);
  kv_.index().watch_evictions([&control = deps.control] { return control.now(); },
                              [idle = prefix_idle_](Duration unused) {
                                idle.observe(std::chrono::duration<double>(unused).count());
                              });
  if (tier_ == nullptr) {
    return;
  }
  tier_blocks_ = metrics.gauge("baton_kv_file_blocks", "Blocks in the file tier");
  tier_queries_ = metrics.counter("vllm:external_prefix_cache_queries_total",
                                  "Tokens that were looked for in the file tier",
                                  vllm_labels(deps.identity));
  tier_hits_ = metrics.counter("vllm:external_prefix_cache_hits_total",
                               "Of these, tokens that were brought back",
                               vllm_labels(deps.identity));
  tier_stored_ =
      metrics.counter("baton_kv_file_stored_blocks_total", "Blocks copied to the file tier");
  tier_broken_ = metrics.counter("baton_kv_file_broken_blocks_total",
                                 "Blocks of the file tier whose checksum differed");
}

KvProbe::~KvProbe() {
  kv_.index().watch_evictions(nullptr, nullptr);
}

void KvProbe::update(const transfer::TransportStats& transfer) {
  const engine::BlockPool& pool = kv_.pool();
  total_.set(pool.total());
  free_.set(pool.free());
  in_use_.set(pool.count(engine::BlockUse::InUse));
  granted_.set(pool.count(engine::BlockUse::Granted));
  quarantined_.set(pool.count(engine::BlockUse::Quarantined));
  cached_.set(pool.count(engine::BlockUse::Cached));
  usage_.set(1 - static_cast<double>(kv_.num_obtainable()) / std::max(1U, pool.total()));
  update_prefixes();
  update_tier();
  bytes_sent_.set(static_cast<double>(transfer.bytes_sent));
  bytes_received_.set(static_cast<double>(transfer.bytes_received));
  messages_dropped_.set(static_cast<double>(transfer.messages_dropped));
  sends_failed_.set(static_cast<double>(transfer.sends_failed));
  digest_mismatches_.set(static_cast<double>(transfer.digest_mismatches));
  open_leases_.set(static_cast<double>(transfer.open_leases));
  reactor_loops_.set(static_cast<double>(transfer.loop_count));
}

void KvProbe::update_prefixes() {
  const engine::PrefixIndex::Stats& stats = kv_.index().stats();
  add(prefix_queries_, stats.asked_tokens, told_.asked_tokens);
  add(prefix_hits_, stats.hit_tokens, told_.hit_tokens);
  add(prefix_lookups_, stats.lookups, told_.lookups);
  add(prefix_stored_, stats.inserted, told_.inserted);
  add(prefix_evicted_, stats.evicted, told_.evicted);
  told_ = stats;
}

void KvProbe::update_tier() {
  if (tier_ == nullptr) {
    return;
  }
  const engine::FileTier::Stats& stats = tier_->stats();
  tier_blocks_.set(tier_->num_blocks());
  add(tier_queries_, stats.asked_tokens, tier_told_.asked_tokens);
  add(tier_hits_, stats.hit_tokens, tier_told_.hit_tokens);
  add(tier_stored_, stats.stored, tier_told_.stored);
  add(tier_broken_, stats.broken, tier_told_.broken);
  tier_told_ = stats;
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
