// What a role (prefill, decode) is given, and how the process that hosts it drives it.
//
// Owner: the host. Thread: control strand, but for construction and destruction, which happen
// there or while the strand does not run. Failure: `start` says what could not be opened.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/config/cluster_config.h"
#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "common/rpc/network.h"
#include "engine/kv/file_tier.h"
#include "engine/kv/kv_memory.h"
#include "engine/runner.h"
#include "node/artifacts.h"
#include "node/grammars.h"
#include "node/identity.h"
#include "transfer/transport.h"

namespace baton::node {

// Everything outlives the role.
struct RoleDeps {
  Executor& control;
  Executor& engine;  // one task at a time, on the engine thread
  Network& network;
  transfer::Transport& transport;
  engine::ModelRunner& runner;
  engine::KvMemory& kv;
  const Artifacts& artifacts;
  const ClusterConfig& config;
  NodeEntry entry;
  NodeIdentity identity;
  Metrics& metrics;
  const Logger& log;
  RandomSource random;
  transfer::DigestMode digest = transfer::DigestMode::Off;  // that this node wants
  engine::FileTier* tier = nullptr;  // a prefill node's, where kv.file_tier is set
  Grammars* grammars = nullptr;      // null: the role refuses requests with a grammar
  // Ends this life of the node and begins the next one with that role, new incarnation and all; on
  // the control strand, with nothing in work. Null: the node has one role.
  std::function<void(const std::string& role)> change_role;
};

class Role {
 public:
  virtual ~Role() = default;
  // Listens where the role has a listener, and dials the gateways.
  virtual Status start() = 0;
  // host:port that other nodes dial; empty when nobody does.
  virtual std::string control_address() const = 0;
  // Registered with at least one gateway and not draining.
  virtual bool is_ready() const = 0;
  // Takes no new work and hands back what is still in work after `limit`; `drained` runs once
  // nothing is left, at once or later.
  virtual void drain(std::chrono::milliseconds limit, std::function<void()> drained) = 0;
  // Ends what is still in work with an error to its gateway and closes every connection.
  virtual void stop() = 0;
};

}  // namespace baton::node
