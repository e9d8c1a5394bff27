// Where a model is cut for several ranks, and where its sums are cut for all numbers of ranks
// alike.
//
// The attention output and the down projection sum over what the ranks share out. Their sums over K
// are therefore always made of up to kVirtualShards chains, each from zero, added in ascending
// order; a rank has whole shards. So one, two and four ranks give the same bits.
//
// Thread: values. Failure: none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace baton::engine {

inline constexpr std::uint32_t kVirtualShards = 4;

// Ascending borders of the shards: shard s is [borders[s], borders[s + 1]), and may be empty.
using ShardBorders = std::array<std::uint32_t, kVirtualShards + 1>;

// `count` things cut as evenly as whole units allow; the last unit may be short.
ShardBorders cut_shards(std::uint32_t count, std::uint32_t unit);

struct ShardPlan {
  ShardBorders kv_heads{};  // of the attention output, in KV heads with their query heads
  ShardBorders ffn{};       // of the down projection, in features
};

// Shards [first, end) of rank `rank` among `ranks`: 1, 2 or 4.
struct ShardRange {
  std::uint32_t first = 0;
  std::uint32_t end = kVirtualShards;
};
ShardRange shards_of(std::uint32_t rank, std::uint32_t ranks);

// Columns of K at which a chain ends: the ends of the shards that are not empty, times `width`.
std::vector<std::uint32_t> chain_ends(const ShardBorders& borders, std::uint32_t width);

}  // namespace baton::engine
