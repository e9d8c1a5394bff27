// A lease is the right to use one KV block. It is move-only; dropping it returns the block to its
// pool. A block is free or held by exactly one lease. A shared prefix is a lease owned by
// PrefixIndex and borrowed through PrefixRef; nothing else may keep a BlockId for longer than a
// call.
//
// Thread: may be moved between threads, must be dropped on the pool's strand.
// Failure: acquiring may fail with ErrorCode::NoBlocks; dropping never fails.
#pragma once

#include <cstdint>
#include <utility>

#include "common/base/ids.h"

namespace baton::engine {

class BlockPool;

// What a leased block is held for; the pool counts blocks by it.
enum class BlockUse : std::uint8_t {
  Free,         // in the free list; no lease
  InUse,        // a sequence's own
  Granted,      // promised to a remote writer
  Quarantined,  // its grant ended and the writer is not proven quiet yet
  Cached,       // owned by the prefix index
};
inline constexpr std::size_t kNumBlockUses = 5;

class BlockLease {
 public:
  BlockLease() = default;  // holds nothing
  BlockLease(BlockLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  BlockLease& operator=(BlockLease&& other) noexcept;
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease() { reset(); }

  // REQUIRES: holds a block.
  BlockId id() const { return id_; }
  explicit operator bool() const { return pool_ != nullptr; }
  // Changes what the block is counted as. REQUIRES: holds a block; `use` is not Free.
  void mark(BlockUse use);

  // Returns the block now. REQUIRES: on the pool's strand, or empty.
  void reset();

 private:
  friend class BlockPool;
  BlockLease(BlockPool& pool, BlockId id) : pool_(&pool), id_(id) {}

  BlockPool* pool_ = nullptr;  // outlives every lease; null when empty
  BlockId id_{};               // index into the arena, [0, pool size)
};

}  // namespace baton::engine
