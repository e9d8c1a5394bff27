// Who holds which KV block. The free list keeps runs of neighbouring ids and gives the smallest run
// that fits, so that a request's blocks lie together and its transfers merge.
//
// Owner: KvMemory. Thread: the node's control strand. Failure: NoBlocks when fewer are free than
// asked for. The destructor asserts that no lease is out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "engine/kv/block_lease.h"

namespace baton::engine {

class BlockPool {
 public:
  // With BATON_TORTURE a freed block is filled with NaN in `arena`; otherwise only its size counts.
  explicit BlockPool(const KvArenaView& arena);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // All of `count` blocks or none, marked InUse, ids ascending within each run.
  Result<std::vector<BlockLease>> acquire(std::uint32_t count);

  std::uint32_t total() const { return total_; }
  std::uint32_t free() const { return count(BlockUse::Free); }
  BlockUse use(BlockId id) const { return uses_[id.value]; }
  std::uint32_t count(BlockUse use) const { return counts_[static_cast<std::size_t>(use)]; }

  // Recounts everything; ends the process when the books do not balance. For tests and torture.
  void check_invariants() const;

 private:
  friend class BlockLease;
  void give_back(BlockId id);
  void mark(BlockId id, BlockUse use);
  void add_run(std::uint32_t first, std::uint32_t count);
  void take_front(std::uint32_t first, std::uint32_t count, std::vector<BlockLease>& leases);
  void poison(BlockId id) const;

  const KvArenaView arena_;
  const std::uint32_t total_;
  std::vector<BlockUse> uses_;                               // [total_]
  std::array<std::uint32_t, kNumBlockUses> counts_{};        // of uses_, sums to total_
  std::map<std::uint32_t, std::uint32_t> runs_;              // free: first id -> length
  std::set<std::pair<std::uint32_t, std::uint32_t>> sized_;  // the same: (length, first id)
};

// Neighbouring ids merged, in order.
std::vector<BlockRun> to_runs(std::span<const BlockId> ids);
std::vector<BlockRun> to_runs(std::span<const BlockLease> leases);

}  // namespace baton::engine
