// Which node holds which block of which prompt: one map from a block's hash (common/types/
// prefix_hash.h) to the set of nodes that have announced it.
//
// A node has a slot, its dense number here. Slots stand in groups of 64, a group's set is one word;
// a prompt's chain is walked once a group, until no node has the next block. A slot that is given
// up counts no more at once; what it held is cleared in small pieces by later calls of `sweep`.
//
// Memory: 16 bytes for each different block that nodes announced, at most kMaxBlocks a node.
//
// Owner: Routing. Thread: the control strand. Failure: none; what is over the limit is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gateway/routing/block_table.h"

namespace baton::gateway {

class PrefixMap {
 public:
  using Slot = std::uint32_t;
  static constexpr std::uint32_t kMaxBlocks = 1U << 22U;

  explicit PrefixMap(std::uint64_t mixer) : mixer_(mixer) {}

  // A slot that holds nothing.
  Slot add();
  // REQUIRES of all below: the slot was added and not retired.
  void retire(Slot slot);
  void store(Slot slot, std::span<const std::uint64_t> hashes);
  void remove(Slot slot, std::span<const std::uint64_t> hashes);

  // For each slot, how many leading blocks of the chain it holds, those counted in that it is
  // expected to hold soon: the first `expected[slot]`, none behind the end of `expected`. `matched`
  // is sized by the call; slots that are not in use have 0.
  void match(std::span<const std::uint64_t> chain,
             std::span<const std::uint32_t> expected,
             std::vector<std::uint32_t>& matched) const;

  // One piece of clearing; true while there is more.
  bool sweep();

  std::uint32_t announced(Slot slot) const;  // blocks
  std::size_t slots() const { return groups_.size() * kGroup; }
  std::size_t size() const;  // different blocks
  std::size_t bytes() const;

 private:
  static constexpr std::uint32_t kGroup = 64;
  struct Group {
    explicit Group(std::uint64_t mixer) : held(mixer) {}
    BlockTable held;
    std::uint64_t used = 0;      // slots in use
    std::uint64_t retired = 0;   // given up; their bits are being cleared
    std::uint64_t clearing = 0;  // those of `retired` that this round of clearing covers
    std::size_t next_segment = 0;
    std::uint32_t announced[kGroup] = {};
  };
  Group& group_of(Slot slot) { return *groups_[slot / kGroup]; }
  static std::uint64_t bit_of(Slot slot) { return std::uint64_t{1} << (slot % kGroup); }
  // One segment; true while the group has more.
  static bool sweep(Group& group);

  const std::uint64_t mixer_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace baton::gateway
