// The prefix cache's second tier: copies of idle blocks in a file, made before the arena needs
// their places, and brought back when a prompt begins with them again.
//
//   listed for eviction --copied, checksum kept--> in the file --`load`, checksum compared--> a
//   request's block, sealed as if it had been computed
//
// A block is found by the serial of the block before it and its own token ids, so a hit is as exact
// as one of the prefix index; the index asks the tier for the serial of a block that comes back.
// The slot used longest ago is written over; of a chain the last block goes first.
//
// Owner: the host, beside KvMemory, which outlives it. Thread: control strand; bytes move on the
// copier, which must have stopped before this object goes. Failure: a block whose checksum differs
// is forgotten and the request computes from there on; what finds no slot is not kept.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/exec/executor.h"
#include "engine/kv/kv_memory.h"
#include "engine/kv/tier_file.h"

namespace baton::engine {

using TierLoadId = StrongId<struct TierLoadIdTag, std::uint64_t>;

class FileTier {
 public:
  struct Stats {
    std::uint64_t asked_tokens = 0;  // of requests that looked here: what the arena lacked
    std::uint64_t hit_tokens = 0;    // of these, brought back
    std::uint64_t stored = 0;        // blocks copied to the file
    std::uint64_t broken = 0;        // blocks whose checksum differed
  };
  // What came back: all blocks that were given, of which the first `count` hold the prefix.
  struct Loaded {
    std::vector<BlockLease> blocks;
    std::uint32_t count = 0;
  };
  using OnLoaded = std::function<void(Loaded)>;

  // `copier` runs one task at a time.
  FileTier(KvMemory& kv, Executor& control, Executor& copier, TierFile file);
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;
  ~FileTier();

  // Begins to copy idle blocks. `on_freed` runs when blocks that were held for it may be had again.
  void start(std::function<void()> on_freed);
  // Copies no more and tells nobody any more.
  void stop();

  // Blocks behind the chain `held` of the context `tokens` that are in the file, at most so many.
  std::uint32_t look(const PrefixRef& held, std::span<const TokenId> tokens, std::uint32_t most);
  // Copies blocks held.num_blocks(), … of the context into `blocks`. `on_loaded` runs once, later,
  // unless cancelled. REQUIRES: `look` has just said there are that many.
  TierLoadId load(const PrefixRef& held,
                  std::span<const TokenId> tokens,
                  std::vector<BlockLease> blocks,
                  OnLoaded on_loaded);
  void cancel(TierLoadId id);

  const TierFile& file() const { return file_; }
  const Stats& stats() const { return stats_; }
  std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(by_serial_.size()); }
  bool is_quiet() const { return loads_.empty() && batch_.empty(); }

 private:
  struct Slot {
    std::uint64_t serial = 0;     // 0: free
    std::uint64_t parent = 0;     // serial of the block before; 0: there is none
    std::uint64_t name = 0;       // as in the index
    std::vector<TokenId> tokens;  // [block_tokens]
    std::uint64_t checksum = 0;
    std::uint32_t users = 0;                   // copies under way
    std::list<std::uint32_t>::iterator place;  // in idle_; valid while it has no user
  };
  struct Copy {
    std::uint32_t slot = 0;
    BlockId block{};
    std::uint64_t checksum = 0;  // of what was copied, or of what must come
  };
  struct Load {
    std::vector<BlockLease> blocks;
    std::vector<Copy> copies;
    OnLoaded on_loaded;  // null when cancelled
  };

  void keep_next();
  void kept(const std::vector<Copy>& copies);
  void loaded(TierLoadId id, std::uint32_t count);
  // Slots of the blocks behind `held`, in order.
  std::vector<std::uint32_t> walk(const PrefixRef& held,
                                  std::span<const TokenId> tokens,
                                  std::uint32_t most) const;
  const Slot* find(std::uint64_t parent, std::uint64_t name, std::span<const TokenId> tokens) const;
  std::optional<std::uint32_t> take_slot();
  void use(std::uint32_t slot);
  void release(std::uint32_t slot);
  void forget(Slot& slot);
  void arm();

  KvMemory& kv_;
  Executor& control_;
  Executor& copier_;
  TierFile file_;
  std::vector<Slot> slots_;  // [file_.num_slots()]
  std::vector<std::uint32_t> free_;
  std::list<std::uint32_t> idle_;  // in use, no copy under way; used longest ago first
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_name_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_serial_;
  PrefixRef batch_chain_;  // pinned while blocks of it are copied to the file
  std::vector<Copy> batch_;
  std::map<TierLoadId, Load> loads_;
  std::uint64_t next_load_ = 1;
  std::function<void()> on_freed_;
  TimerHandle timer_;
  Stats stats_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::engine
