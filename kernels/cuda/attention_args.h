// What the attention kernels are given, and how a call is cut into their blocks. Both kinds of
// block give a query the same bits: slices of many queries go by tiles of 64 (attention_prefill.h),
// those of few over a long past by ranges of 256 positions, which are joined after
// (attention_decode.h).
//
// Thread: plain values; planning is the caller's. Failure: none; wrong shapes are the caller's
// fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_pages.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kTileTokens = 64;    // positions that a softmax is taken over at once
inline constexpr unsigned kRangeTokens = 256;  // positions whose tiles join before ranges do
inline constexpr unsigned kRangeTiles = kRangeTokens / kTileTokens;
inline constexpr unsigned kWarpQueries = 16;
inline constexpr unsigned kAttentionWarps = 4;
inline constexpr unsigned kAttentionThreads = kAttentionWarps * kWarp;
inline constexpr unsigned kBlockQueries = kWarpQueries * kAttentionWarps;
inline constexpr unsigned kMostHeadDim = 256;

// Neighbouring queries of one sequence and kv head. Query i of a slice is head i % group of the
// group, of the slice's row i / group.
struct AttentionTile {
  std::uint32_t first_row = 0;       // the slice's, in q and out
  std::uint32_t first_position = 0;  // of that row
  std::uint32_t table = 0;           // where the block table begins
  std::uint32_t first_query = 0;     // of the slice
  std::uint32_t queries = 0;         // 1 to 64; of a range 1 to 16, or 0: its block does nothing
  std::uint32_t first_range = 0;     // of the ranges that these queries see
  std::uint32_t ranges = 0;
  std::uint32_t range = 0;    // which of them, when the block computes one
  std::uint32_t partial = 0;  // where the first range's result goes: [range] from here
};

struct AttentionArgs {
  KvPages pages;
  const AttentionTile* tiles = nullptr;  // one a block along x
  const float* q = nullptr;              // [rows][q_stride], heads at h * head_dim
  float* out = nullptr;                  // [rows][out_stride]
  float* partials = nullptr;             // [partial][kv head][16][head_dim + 2]
  std::size_t q_stride = 0;
  std::size_t out_stride = 0;
  std::uint32_t first_kv_head = 0;  // of the arena's
  std::uint32_t kv_heads = 0;       // computed
  std::uint32_t group = 0;          // query heads a kv head
  std::uint32_t window = 0;         // sees positions (p - window, p]; 0: all
  float scale = 1.0F;
  float softcap = 0.0F;  // 0: off
};

// Floats of `partials`, for so many blocks of attend_range.
constexpr std::size_t partial_floats(std::size_t blocks,
                                     std::uint32_t kv_heads,
                                     std::uint32_t head_dim) {
  return blocks * kv_heads * kWarpQueries * (head_dim + 2);
}

// The positions that one query sees.
struct Seen {
  std::uint32_t low;
  std::uint32_t high;
};
constexpr Seen seen_from(std::uint32_t position, std::uint32_t window) {
  const std::uint32_t low = window != 0 && position + 1 > window ? position + 1 - window : 0;
  return {low, position + 1};
}

struct AttentionPlan {
  std::vector<AttentionTile> prefill;  // blocks of attend_tiles
  std::vector<AttentionTile> decode;   // blocks of attend_range
  std::vector<AttentionTile> join;     // blocks of join_ranges: one for each tile of `decode`
  std::uint32_t partials = 0;
  bool by_ranges_only = false;  // no slice goes by tiles of 64, however many queries it has

  // Adds the blocks of a slice: `num_rows` rows from `first_row`.
  void add(std::uint32_t first_row,
           std::uint32_t num_rows,
           std::uint32_t first_position,
           std::uint32_t table,
           std::uint32_t group,
           std::uint32_t window);
};

inline void AttentionPlan::add(std::uint32_t first_row,
                               std::uint32_t num_rows,
                               std::uint32_t first_position,
                               std::uint32_t table,
                               std::uint32_t group,
                               std::uint32_t window) {
  const std::uint32_t queries = num_rows * group;
  const bool few = by_ranges_only || queries <= kBlockQueries;
  const std::uint32_t each = few ? kWarpQueries : kBlockQueries;
  for (std::uint32_t first = 0; first < queries; first += each) {
    AttentionTile tile{first_row, first_position, table, first, 0, 0, 0, 0, 0};
    tile.queries = queries - first < each ? queries - first : each;
    const std::uint32_t last = first_position + (first + tile.queries - 1) / group;
    tile.first_range = seen_from(first_position + first / group, window).low / kRangeTokens;
    tile.ranges = last / kRangeTokens - tile.first_range + 1;
    if (!few) {
      prefill.push_back(tile);
      continue;
    }
    tile.partial = partials;
    join.push_back(tile);
    for (tile.range = 0; tile.range < tile.ranges; ++tile.range) {
      decode.push_back(tile);
    }
    partials += tile.ranges;
  }
}

}  // namespace baton::kernels::cuda
