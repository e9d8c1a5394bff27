#include "tests/sim/machine.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/check.h"

namespace baton::sim {

Machine::Machine(Executor& control,
                 Executor& engine,
                 std::unique_ptr<Network> network,
                 const TransportMaker& make_transport,
                 MachineOptions options)
    : log_(options.log), config_(std::move(options.config)), runner_(std::move(options.model)) {
  auto kv = engine::KvMemory::create(
      runner_.info().layout,
      {.num_blocks = options.num_blocks, .prefix_cache = config_.kv.prefix_cache});
  BATON_CHECK(kv.has_value(), "no memory for a test's arena");
  kv_ = std::move(*kv);
  transport_ = make_transport(kv_->arena());
  network_ = std::move(network);
  artifacts_.add("tokenizer", std::string(16, 't'));
  node::RoleDeps deps{
      .control = control,
      .engine = engine,
      .network = *network_,
      .transport = *transport_,
      .runner = runner_,
      .kv = *kv_,
      .artifacts = artifacts_,
      .config = config_,
      .entry = options.entry,
      .identity = {.name = options.entry.name,
                   .role = options.role,
                   .incarnation = Incarnation{options.incarnation},
                   .cluster_token = config_.cluster.token,
                   .ucx_version = transport_->ucx_version(),
                   .model = node::make_model_identity("scripted", runner_.info(), 77, 1),
                   .control_address = ""},
      .metrics = metrics_,
      .log = log_,
      .random = seeded_random(options.incarnation),
      .digest = options.digest};
  if (options.role == "decode") {
    role_ = std::make_unique<decode_node::DecodeNode>(std::move(deps));
  } else {
    role_ = std::make_unique<prefill_node::PrefillNode>(std::move(deps));
  }
}

Machine::~Machine() {
  role_->stop();
  transport_->stop();
  role_.reset();
}

bool Machine::is_clean() const {
  kv_->check_invariants();
  const engine::BlockPool& pool = kv_->pool();
  return pool.free() + pool.count(engine::BlockUse::Cached) == pool.total() &&
         kv_->index().num_evictable() == kv_->index().num_blocks();
}

std::string Machine::describe_blocks() const {
  const engine::BlockPool& pool = kv_->pool();
  return fmt::format("{} free, {} in use, {} granted, {} quarantined, {} cached ({} evictable)",
                     pool.free(),
                     pool.count(engine::BlockUse::InUse),
                     pool.count(engine::BlockUse::Granted),
                     pool.count(engine::BlockUse::Quarantined),
                     pool.count(engine::BlockUse::Cached),
                     kv_->index().num_evictable());
}

}  // namespace baton::sim
