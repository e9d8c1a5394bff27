// Which cached block goes first: the one that is least worth its place. After
// GreedyDual-Size-Frequency (L. Cherkasova, "Improving WWW Proxies Performance with
// Greedy-Dual-Size-Frequency Caching Policy", HP Laboratories HPL-98-69, 1998), with blocks of one
// size:
//
//   priority = clock + grace + hits * cost        clock = the priority of what went last
//
// `cost` is what computing the block again takes: its tokens through the layers, and attention over
// all before them, so that the end of a long chain is dearer than its beginning. The clock makes
// what is not hit any more fall behind what is. Hits, not uses: a prompt that came once has no more
// than the grace, however long it is, and does not push out what others share.
//
// Owner: PrefixIndex. Thread: the node's control strand. Failure: none.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace baton::engine {

// All costs are in tokens without attention.
struct EvictionPolicy {
  // Tokens of context whose attention costs as much as a token's way through the layers: about six
  // times a model's width; it need not be exact.
  std::uint64_t attention_tokens = 4096;
  std::uint64_t grace = 2048;   // of a block that was never hit
  std::uint64_t most_hits = 4;  // what was hit more often counts no more: habits change

  // The least recently used first, whatever it costs.
  static constexpr EvictionPolicy lru() { return {.grace = 0, .most_hits = 0}; }
};

// What the order knows of a block; its owner derives from it.
struct EvictionItem {
  std::uint64_t position = 0;  // in its context, of the block's first token
  std::uint64_t hits = 0;      // requests that found it
  std::uint64_t priority = 0;
  std::uint64_t last_use = 0;  // orders equal priorities
  bool is_listed = false;      // may be evicted
};

class EvictionOrder {
 public:
  explicit EvictionOrder(EvictionPolicy policy) : policy_(policy) {}
  EvictionOrder(const EvictionOrder&) = delete;
  EvictionOrder& operator=(const EvictionOrder&) = delete;
  ~EvictionOrder() = default;

  // In use until now. REQUIRES: not listed.
  void touch(EvictionItem& item);
  // May be evicted from now on, by the priority of its last touch.
  void list(EvictionItem& item);
  // May not. Does nothing when it is not listed.
  void unlist(EvictionItem& item);
  // The next to go, the first of them first, at most so many.
  std::vector<EvictionItem*> next(std::size_t most) const;
  // What goes first; null when nothing is listed. It is not listed any more, and the clock is set.
  EvictionItem* take();

  std::size_t num_listed() const { return listed_.size(); }
  bool holds(EvictionItem& item) const { return listed_.contains(&item); }

 private:
  struct Earlier {
    bool operator()(const EvictionItem* a, const EvictionItem* b) const {
      return a->priority != b->priority ? a->priority < b->priority : a->last_use < b->last_use;
    }
  };

  const EvictionPolicy policy_;
  std::set<EvictionItem*, Earlier> listed_;
  std::uint64_t clock_ = 0;
  std::uint64_t uses_ = 0;  // counts touches
};

}  // namespace baton::engine
