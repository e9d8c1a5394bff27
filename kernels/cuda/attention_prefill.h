// Attention for slices of many queries: a block takes 64 queries of one kv head, 16 a warp, and
// walks the tiles of 64 positions that any of them sees, in ascending order. See attention_tile.h.
//
// Tiles of a range of 256 positions join in registers; the ranges before are in shared memory, each
// number with the lane that owns it.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile.h"

namespace baton::kernels::cuda {

template <unsigned kDim>
struct PrefillShared {
  StagedTile<kDim> tile;
  StagedQueries<kDim> queries[kAttentionWarps];
  float ranges[kAttentionWarps][kDim / 8 * 4][kWarp];
};

// `tiles`: of the plan. kv heads lie along y.
template <unsigned kDim>
LaunchShape attend_tiles_shape(const AttentionArgs& args, std::size_t tiles) {
  return {.x = static_cast<unsigned>(tiles),
          .y = args.kv_heads,
          .threads = kAttentionThreads,
          .dynamic_shared = sizeof(PrefillShared<kDim>)};
}

// The lane's two queries over some positions.
template <unsigned kDim>
struct LanePartial {
  float largest[2] = {kMinusInfinity, kMinusInfinity};
  float sums[2] = {};
  float values[kDim / 8][4] = {};
};

template <unsigned kDim, bool kBfloat>
BATON_DEVICE void join_tile(const Weights& weights,
                            const StagedTile<kDim>& tile,
                            LanePartial<kDim>& partial) {
  float sums[2];
  weight_sums<kBfloat>(weights, sums);
  Join by[2];
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    by[r] = join(partial.largest[r], weights.largest[r]);
    partial.largest[r] = by[r].largest;
    partial.sums[r] = joined(by[r], partial.sums[r], sums[r]);
  }
  BATON_UNROLL
  for (unsigned n = 0; n < kDim / 8; ++n) {
    float c[4];
    weighted_values<kDim, kBfloat>(weights, tile, n, c);
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      partial.values[n][i] = joined(by[i / 2], partial.values[n][i], c[i]);
    }
  }
}

// Ranges join what the lane has in shared memory; `largest` and `sums` go with it.
template <unsigned kDim>
BATON_DEVICE void join_range(LanePartial<kDim>& range,
                             float (&largest)[2],
                             float (&sums)[2],
                             float (&values)[kDim / 8 * 4][kWarp]) {
  Join by[2];
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    by[r] = join(largest[r], range.largest[r]);
    largest[r] = by[r].largest;
    sums[r] = joined(by[r], sums[r], range.sums[r]);
  }
  BATON_UNROLL
  for (unsigned i = 0; i < kDim / 8 * 4; ++i) {
    float& sum = values[i][lane_index()];
    sum = joined(by[i % 4 / 2], sum, range.values[i / 4][i % 4]);
  }
  range = LanePartial<kDim>{};
}

template <unsigned kDim, bool kBfloat>
[[maybe_unused]] static BATON_KERNEL(kAttentionThreads) attend_tiles(AttentionArgs args) {
  auto& shared = *dynamic_shared<PrefillShared<kDim>>();
  const AttentionTile tile = args.tiles[block_index()];
  const std::uint32_t kv_head = block_index_y();
  const unsigned warp = warp_index();
  const std::uint32_t first_query = warp * kWarpQueries;
  const Crew block{thread_index(), kAttentionThreads};
  auto& ranges = shared.ranges[warp];
  float largest[2] = {kMinusInfinity, kMinusInfinity};
  float sums[2] = {};
  BATON_UNROLL
  for (unsigned i = 0; i < kDim / 8 * 4; ++i) {
    ranges[i][lane_index()] = 0.0F;
  }
  stage_queries<kDim, kBfloat>(
      args, tile, kv_head, first_query, {lane_index(), kWarp}, shared.queries[warp]);
  const LaneSeen seen = lane_seen(args, tile, first_query);
  // What the block sees at all, and what of it the warp sees: its first query the lowest position,
  // its last the highest.
  const auto position_of = [&](std::uint32_t index) {
    return tile.first_position + (tile.first_query + index) / args.group;
  };
  const bool has_queries = first_query < tile.queries;
  const std::uint32_t last_query =
      first_query + kWarpQueries < tile.queries ? first_query + kWarpQueries - 1 : tile.queries - 1;
  const std::uint32_t low = seen_from(position_of(0), args.window).low;
  const std::uint32_t end = position_of(tile.queries - 1) + 1;
  const std::uint32_t warp_low =
      has_queries ? seen_from(position_of(first_query), args.window).low : end;
  const std::uint32_t warp_end = has_queries ? position_of(last_query) + 1 : 0;
  LanePartial<kDim> range;
  for (std::uint32_t first = low / kTileTokens * kTileTokens; first < end; first += kTileTokens) {
    const StageFrom from{tile.table, args.first_kv_head + kv_head, first, end};
    const bool concerned = first < warp_end && first + kTileTokens > warp_low;
    Scores scores;
    sync_threads();
    stage_keys<kDim>(args.pages, from, block, shared.tile);
    sync_threads();
    if (concerned) {
      tile_scores<kDim, kBfloat>(shared.queries[warp], shared.tile, scores);
    }
    sync_threads();
    stage_values<kDim>(args.pages, from, block, shared.tile);
    sync_threads();
    if (concerned) {
      Weights weights;
      tile_weights<kBfloat>(args, seen, first, shared.tile, scores, weights);
      join_tile<kDim, kBfloat>(weights, shared.tile, range);
    }
    if ((first + kTileTokens) % kRangeTokens == 0 || first + kTileTokens >= end) {
      join_range<kDim>(range, largest, sums, ranges);
    }
  }
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    const std::uint32_t index = first_query + lane_index() / 4 + r * 8;
    if (index >= tile.queries) {
      continue;
    }
    const QueryPlace place = query_place(args, tile, kv_head, index);
    float* const out = args.out + place.row * args.out_stride + place.head * args.pages.head_dim;
    for (unsigned n = 0; n < kDim / 8; ++n) {
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned dim = n * 8 + lane_index() % 4 * 2 + i;
        if (dim < args.pages.head_dim) {
          out[dim] = attended(ranges[n * 4 + r * 2 + i][lane_index()], sums[r]);
        }
      }
    }
  }
}

}  // namespace baton::kernels::cuda
