// Turns "these tokens, from blocks of this layout, into blocks of that one" into copies: another
// block size, another element order, another split of the KV heads over tensor-parallel ranks.
// Element types are never converted; scales travel with the elements they belong to.
//
// Thread: pure functions. Failure: `check_plan` says why two sides do not fit; `plan_layout`
// requires that it was asked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_layout.h"

namespace baton::transfer {

// Neighbouring KV heads, or neighbouring tokens of a context.
struct Range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};
Range intersect(Range a, Range b);

// The KV heads of one rank: split evenly by integer division; with more ranks than heads, several
// ranks hold the same head. REQUIRES: heads > 0, rank < ranks.
Range heads_of_rank(std::uint32_t heads, std::uint32_t ranks, std::uint32_t rank);

// What one rank sends to one rank of the other side.
struct RankCopy {
  std::uint32_t source = 0;  // ranks
  std::uint32_t target = 0;
  Range heads;  // of the model
  bool operator==(const RankCopy&) const = default;
};
// Every target rank gets each of its heads from exactly one source rank; where several hold a head,
// the targets are spread over them. Ordered by target, then by head.
std::vector<RankCopy> plan_ranks(std::uint32_t heads, std::uint32_t sources, std::uint32_t targets);

// One side of a copy: how and where it keeps a context.
struct LayoutSide {
  KvLayout layout;                  // kv_heads: those that lie here
  Range heads;                      // which of the model's heads they are
  std::uint32_t first_token = 0;    // the first that blocks[0] holds
  std::span<const BlockId> blocks;  // [i] holds block_tokens tokens from first_token + i * that
  Range tokens() const {
    return {first_token, static_cast<std::uint32_t>(blocks.size()) * layout.block_tokens};
  }
};

// Repeats a copy `count` times, so many bytes further on each side.
struct CopyLoop {
  std::uint32_t count = 1;
  std::uint64_t source_step = 0;
  std::uint64_t target_step = 0;
  bool operator==(const CopyLoop&) const = default;
};

// The same in each layer. A plain copy may go on into blocks with the following ids.
struct BlockCopy {
  BlockId source{};
  std::uint64_t source_offset = 0;  // bytes from the beginning of the block
  BlockId target{};
  std::uint64_t target_offset = 0;
  std::uint64_t length = 0;       // neighbouring bytes
  std::array<CopyLoop, 3> loops;  // innermost first
  bool is_plain() const { return loops == std::array<CopyLoop, 3>{}; }
  std::uint64_t bytes() const { return length * loops[0].count * loops[1].count * loops[2].count; }
};

// InvalidArgument unless both sides hold the heads and the tokens, of one dtype and head size.
Status check_plan(const LayoutSide& source, const LayoutSide& target, Range heads, Range tokens);
// Appends the copies that bring keys and values of `heads` and `tokens`, and their scales, from
// source to target.
// Together they write each of these elements once and nothing else. REQUIRES: check_plan.
void plan_layout(const LayoutSide& source,
                 const LayoutSide& target,
                 Range heads,
                 Range tokens,
                 std::vector<BlockCopy>& out);
// Carries a copy out. `source` and `target`: where the copy's blocks begin, in one layer.
void run(const BlockCopy& copy, const std::byte* source, std::byte* target);

}  // namespace baton::transfer
