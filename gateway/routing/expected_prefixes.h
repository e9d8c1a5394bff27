// Which beginnings of prompts are expected on which nodes: a tree of chains of block hashes in
// which whatever several chains have in common stands once, with a count for each node. A hash
// names all blocks before it, too, so a stretch of a chain is found by the hash of its first block,
// and where two chains part by bisection: a prompt of thousands of blocks costs a handful of steps.
//
// Owner: SentBlocks. Thread: the control strand. Failure: none; of chains whose hashes collide less
// is expected than could be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gateway/routing/block_table.h"

namespace baton::gateway {

class ExpectedPrefixes {
 public:
  using Chain = std::shared_ptr<const std::vector<std::uint64_t>>;
  // Whose expectation it is.
  struct Holder {
    std::uint32_t slot = 0;
    std::uint32_t life = 0;  // of the slot
    bool operator==(const Holder&) const = default;
  };

  explicit ExpectedPrefixes(std::uint64_t mixer) : index_(mixer) {}

  void add(const Holder& holder, const Chain& chain);
  // REQUIRES: added before and not removed since.
  void remove(const Holder& holder, std::span<const std::uint64_t> chain);
  // visit(holder, blocks) for each stretch that `chain` begins with and each holder of it: so many
  // leading blocks are expected there. A later visit of a holder has more blocks.
  template <class Visit>
  void match(std::span<const std::uint64_t> chain, Visit visit) const {
    for (std::size_t at = 0; at < chain.size();) {
      const std::uint32_t number = find(chain, at);
      if (number == kNone) {
        return;
      }
      const Stretch& stretch = stretches_[number];
      const std::size_t to = common_end(stretch, chain);
      for (const Count& count : stretch.counts) {
        visit(count.holder, to);
      }
      if (to < stretch.end) {
        return;
      }
      at = to;
    }
  }

  std::size_t stretches() const { return index_.size(); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Count {
    Holder holder;
    std::uint32_t requests = 0;
  };
  // Blocks [begin, end) of a chain; where the next ones stand, their first hash tells.
  struct Stretch {
    Chain chain;  // null: free
    std::size_t begin = 0;
    std::size_t end = 0;
    std::vector<Count> counts;
  };

  // The stretch that begins with block `at` of the chain, or kNone.
  std::uint32_t find(std::span<const std::uint64_t> chain, std::size_t at) const;
  // Where the chain parts from the stretch: past the last block they have in common.
  static std::size_t common_end(const Stretch& stretch, std::span<const std::uint64_t> chain);
  std::uint32_t insert(Stretch stretch);
  // Leaves the stretch the blocks before `at`; the others get one of their own. False: their name
  // is taken.
  bool split(std::uint32_t number, std::size_t at);

  BlockTable index_;  // hash of a first block to the number of its stretch, plus 1
  std::vector<Stretch> stretches_;
  std::vector<std::uint32_t> free_;
};

}  // namespace baton::gateway
