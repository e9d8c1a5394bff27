// One real node with everything it stands on, on strands that a simulation drives.
//
// Owner: a SimNode. Thread: the simulation's. Failure: what cannot be set up ends the process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "decode_node/decode_node.h"
#include "engine/kv/kv_memory.h"
#include "node/role.h"
#include "prefill_node/prefill_node.h"
#include "tests/support/scripted_runner.h"
#include "transfer/transport.h"

namespace baton::sim {

// Makes the data plane of a node.
using TransportMaker = std::function<std::unique_ptr<transfer::Transport>(KvArenaView)>;

// What a node is made of.
struct MachineOptions {
  testing::ScriptedOptions model;
  ClusterConfig config;
  NodeEntry entry;
  std::string role;  // prefill, decode
  std::uint32_t num_blocks = 64;
  std::uint64_t incarnation = 1;
  transfer::DigestMode digest = transfer::DigestMode::All;
  Logger log = Logger::silent();
};

// One node with everything it stands on.
class Machine {
 public:
  Machine(Executor& control,
          Executor& engine,
          std::unique_ptr<Network> network,
          const TransportMaker& make_transport,
          MachineOptions options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  engine::KvMemory& kv() { return *kv_; }
  testing::ScriptedRunner& runner() { return runner_; }
  transfer::Transport& transport() { return *transport_; }
  node::Role& role() { return *role_; }
  decode_node::DecodeNode& decode() { return dynamic_cast<decode_node::DecodeNode&>(*role_); }
  prefill_node::PrefillNode& prefill() { return dynamic_cast<prefill_node::PrefillNode&>(*role_); }
  // Nothing is held but what the prefix index keeps; the books balance.
  bool is_clean() const;
  std::string describe_blocks() const;

 private:
  const Logger log_;
  Metrics metrics_;
  node::Artifacts artifacts_;
  const ClusterConfig config_;
  testing::ScriptedRunner runner_;
  std::unique_ptr<engine::KvMemory> kv_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<node::Role> role_;
};

}  // namespace baton::sim
