// Watches a node's KV memory from outside: who writes which block, and whether he may. The data
// path and the scripted model report what they are about to write; a scan compares the bytes of
// every block that nobody reported.
//
// Owner: a SimNode. Thread: the simulation's. Failure: a write that is not allowed fails the world.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/kv_memory.h"
#include "engine/runner.h"
#include "tests/sim/world.h"

namespace baton::sim {

class ArenaWatch {
 public:
  ArenaWatch(World& world, std::string node) : world_(world), node_(std::move(node)) {}
  void attach(const engine::KvMemory& kv);

  // A lease may write these blocks from now on; none of them may be open to another one.
  void opened(LeaseId lease, std::span<const BlockRun> runs);
  // Nothing more can land under the lease.
  void fenced(LeaseId lease);
  // The data path writes into a block under a lease.
  void landing(LeaseId lease, BlockId block);
  // The engine thread writes and reads the blocks of a step.
  void step(const engine::StepPlan& plan);
  // Every block that nobody wrote still holds what it held.
  void scan();

 private:
  std::uint64_t digest(BlockId block) const;
  void broken(const std::string& what);

  World& world_;
  const std::string node_;
  const engine::KvMemory* kv_ = nullptr;
  std::vector<LeaseId> writer_;         // [blocks] empty: no lease is open on it
  std::vector<std::uint64_t> digests_;  // [blocks] at the last scan
  std::vector<bool> written_;           // [blocks] since the last scan
};

}  // namespace baton::sim
