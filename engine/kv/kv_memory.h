// A node's KV memory as one thing: arena, block pool and prefix index, in the order in which they
// depend on each other. Blocks: free + in use + granted + quarantined + cached = total.
//
// Owner: a node's composition root; outlives every lease and ref. Thread: the node's control
// strand. Failure: NoBlocks when even eviction of all unpinned prefixes does not free enough.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/types/kv_layout.h"
#include "engine/kv/arena.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/prefix_index.h"

namespace baton::engine {

class KvMemory {
 public:
  struct Options {
    std::uint32_t num_blocks = 0;
    bool prefix_cache = true;
    std::optional<std::uint64_t> available_memory;  // empty: asks the system
  };
  static Result<std::unique_ptr<KvMemory>> create(const KvLayout& layout, const Options& options);

  const KvArenaView& arena() const { return arena_.view(); }
  const KvLayout& layout() const { return arena_.view().layout; }
  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }

  // Takes `count` blocks, evicting unpinned prefixes when the pool is short of them.
  Result<std::vector<BlockLease>> acquire(std::uint32_t count);
  // Blocks an `acquire` could get now.
  std::uint32_t num_obtainable() const { return pool_.free() + index_.num_evictable(); }
  // Ends the process when the books do not balance.
  void check_invariants() const;

 private:
  KvMemory(KvArena arena, const Options& options);

  KvArena arena_;
  BlockPool pool_;
  PrefixIndex index_;  // holds leases: goes before the pool
};

}  // namespace baton::engine
