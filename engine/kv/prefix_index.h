// Full blocks whose tokens are known, kept for the next prompt that begins the same way. An entry
// is one block; its parent is the entry of the block before it. Entries are found by a chain of
// 64-bit hashes over token ids and taken only when the ids, and the parent, are equal: a colliding
// hash costs a comparison, never a wrong answer.
//
// An entry that a PrefixRef pins, or that has children, is not evicted; of the others the one goes
// first that is least worth its place (eviction.h).
//
// Owner: KvMemory. Thread: the node's control strand. Failure: none; what does not fit is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/exec/executor.h"
#include "engine/kv/block_lease.h"
#include "engine/kv/eviction.h"
#include "engine/kv/prefix_journal.h"

namespace baton::engine {

class PrefixIndex;

// Pins a chain of leading blocks. Move-only; dropping it unpins them.
class PrefixRef {
 public:
  PrefixRef() = default;
  PrefixRef(PrefixRef&& other) noexcept
      : index_(std::exchange(other.index_, nullptr)),
        is_use_(std::exchange(other.is_use_, true)),
        entries_(std::move(other.entries_)) {
    other.entries_.clear();
  }
  PrefixRef& operator=(PrefixRef&& other) noexcept;
  PrefixRef(const PrefixRef&) = delete;
  PrefixRef& operator=(const PrefixRef&) = delete;
  ~PrefixRef() { reset(); }

  std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(entries_.size()); }
  BlockId block(std::uint32_t i) const;
  // What a block holds. No other block of this process has the same serial, but for one with the
  // same tokens and the same tokens before them.
  struct Content {
    std::uint64_t serial = 0;  // 0: no block
    std::uint64_t name = 0;
    std::span<const TokenId> tokens;
  };
  Content content(std::uint32_t i) const;
  // A second tier has had a copy of the block since it was added.
  void mark_kept(std::uint32_t i);
  void reset();

 private:
  friend class PrefixIndex;
  struct Entry;
  PrefixIndex* index_ = nullptr;  // outlives every ref; null when empty
  bool is_use_ = true;            // dropping it makes the blocks recently used
  std::vector<Entry*> entries_;   // block 0, 1, … of the chain
};

class PrefixIndex {
 public:
  struct Stats {
    std::uint64_t lookups = 0;       // by requests that went ahead
    std::uint64_t asked_tokens = 0;  // of their contexts
    std::uint64_t hit_tokens = 0;    // of these, in blocks that were found
    std::uint64_t inserted = 0;      // blocks
    std::uint64_t evicted = 0;
    std::uint64_t collisions = 0;  // equal hash, other tokens
  };

  // `enabled` false: finds and keeps nothing.
  PrefixIndex(std::uint32_t block_tokens, bool enabled, EvictionPolicy policy = {});
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  ~PrefixIndex();

  // Pins the longest known chain of full blocks of `tokens`, at most `max_blocks`.
  PrefixRef find(std::span<const TokenId> tokens, std::uint32_t max_blocks);
  // A request over so many tokens goes ahead with what `find` gave it: counts its hits and misses.
  void count_use(const PrefixRef& ref, std::size_t tokens);
  // How many blocks `find` would pin.
  std::uint32_t peek(std::span<const TokenId> tokens, std::uint32_t max_blocks) const;

  // Adds the block that follows `ref`'s chain: `tokens` are that block's own, exactly block_tokens.
  // True: `lease` was taken and `ref` is one longer. When an equal block is known already, `lease`
  // stays with the caller, `ref` is one longer by the known block, and the answer is false.
  // REQUIRES: enabled; the block's keys and values are complete.
  bool extend(PrefixRef& ref, std::span<const TokenId> tokens, BlockLease& lease);

  // Of the `most` blocks next to be evicted pins the chain of the first that is not marked as kept,
  // where it has at most `longest` blocks. This is no use: the order of eviction stays.
  PrefixRef pin_idle(std::uint32_t most, std::uint32_t longest);
  // Who knows the serial that a block had when it was here before, by the serial of the block
  // before it, its name and its tokens; 0: unknown. Null: nobody.
  using Recall =
      std::function<std::uint64_t(std::uint64_t, std::uint64_t, std::span<const TokenId>)>;
  void set_recall(Recall recall) { recall_ = std::move(recall); }
  // Frees up to `count` blocks; returns how many.
  std::uint32_t evict(std::uint32_t count);
  // Tells at each eviction how long the block had not been used, by the clock `now`. Null: nobody.
  void watch_evictions(std::function<TimePoint()> now, std::function<void(Duration)> evicted);

  bool enabled() const { return enabled_; }
  std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(by_hash_.size()); }
  // Blocks that evicting everything unpinned would free.
  std::uint32_t num_evictable() const { return num_unpinned_; }
  const Stats& stats() const { return stats_; }
  // Names (common/types/prefix_hash.h) of all blocks, in no order.
  std::vector<std::uint64_t> names() const;
  // What has been added and evicted.
  const PrefixJournal& journal() const { return journal_; }

  // Ends the process when pins, children or the eviction order are inconsistent. For tests.
  void check_invariants() const;

 private:
  friend class PrefixRef;
  using Entry = PrefixRef::Entry;

  Entry* lookup(const Entry* parent,
                std::uint64_t name,
                std::span<const TokenId> tokens,
                std::uint64_t* collisions) const;
  void pin(Entry& entry);
  void unpin(Entry& entry, bool is_use);
  void list_if_leaf(Entry& entry);
  void erase(Entry& entry);

  const std::uint32_t block_tokens_;
  const bool enabled_;
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Entry>> by_hash_;  // of its name
  EvictionOrder leaves_;                                                    // unpinned, childless
  std::uint32_t num_unpinned_ = 0;
  std::uint32_t num_refs_ = 0;  // pins of all entries, for the destructor's check
  Stats stats_;
  PrefixJournal journal_;
  Recall recall_;
  std::uint64_t last_serial_ = 0;
  std::function<TimePoint()> now_;
  std::function<void(Duration)> on_evicted_;
};

}  // namespace baton::engine
