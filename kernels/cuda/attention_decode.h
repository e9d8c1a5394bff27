// Attention for slices of few queries: a block takes 16 of them over one range of 256 positions, a
// tile of 64 a warp, and joins the tiles in order into a partial result; join_ranges joins the
// ranges. The bits are those of attend_tiles. See attention_tile.h.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile.h"

namespace baton::kernels::cuda {

static_assert(kRangeTiles == kAttentionWarps);

template <unsigned kDim>
struct DecodeShared {
  struct PerWarp {
    StagedTile<kDim> tile;  // then the partial's values, [16][kDim]
    float largest[kWarpQueries];
    float sums[kWarpQueries];
  };
  StagedQueries<kDim> queries;
  PerWarp warps[kAttentionWarps];
};

// `blocks`: of the plan. kv heads lie along y.
template <unsigned kDim>
LaunchShape attend_range_shape(const AttentionArgs& args, std::size_t blocks) {
  return {.x = static_cast<unsigned>(blocks),
          .y = args.kv_heads,
          .threads = kAttentionThreads,
          .dynamic_shared = sizeof(DecodeShared<kDim>)};
}
inline LaunchShape join_ranges_shape(const AttentionArgs& args, std::size_t blocks) {
  return {.x = static_cast<unsigned>(blocks), .y = args.kv_heads, .threads = kAttentionThreads};
}

BATON_DEVICE float* partial_of(const AttentionArgs& args,
                               const AttentionTile& tile,
                               std::uint32_t range,
                               std::uint32_t kv_head,
                               std::uint32_t query) {
  const std::size_t row =
      (std::size_t{tile.partial + range} * args.kv_heads + kv_head) * kWarpQueries + query;
  return args.partials + row * (args.pages.head_dim + 2);
}

// One tile by one warp; a tile that nobody sees is a partial of nothing.
template <unsigned kDim, bool kBfloat>
BATON_DEVICE void attend_tile(const AttentionArgs& args,
                              const AttentionTile& tile,
                              const StageFrom& from,
                              bool seen_by_some,
                              const StagedQueries<kDim>& queries,
                              typename DecodeShared<kDim>::PerWarp& own) {
  const Crew crew{lane_index(), kWarp};
  float largest[2] = {kMinusInfinity, kMinusInfinity};
  float sums[2] = {};
  float values[kDim / 8][4] = {};
  if (seen_by_some) {
    Scores scores;
    stage_keys<kDim>(args.pages, from, crew, own.tile);
    sync_warp();
    tile_scores<kDim, kBfloat>(queries, own.tile, scores);
    sync_warp();
    stage_values<kDim>(args.pages, from, crew, own.tile);
    sync_warp();
    Weights weights;
    tile_weights<kBfloat>(args, lane_seen(args, tile, 0), from.first, own.tile, scores, weights);
    weight_sums<kBfloat>(weights, sums);
    BATON_UNROLL
    for (unsigned n = 0; n < kDim / 8; ++n) {
      weighted_values<kDim, kBfloat>(weights, own.tile, n, values[n]);
    }
    largest[0] = weights.largest[0];
    largest[1] = weights.largest[1];
    sync_warp();
  }
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    own.largest[g + r * 8] = largest[r];  // four lanes write the same
    own.sums[g + r * 8] = sums[r];
    BATON_UNROLL
    for (unsigned n = 0; n < kDim / 8; ++n) {
      BATON_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        own.tile.words[(g + r * 8) * kDim + n * 8 + t * 2 + i] = bits_of(values[n][r * 2 + i]);
      }
    }
  }
}

template <unsigned kDim, bool kBfloat>
[[maybe_unused]] static BATON_KERNEL(kAttentionThreads) attend_range(AttentionArgs args) {
  auto& shared = *dynamic_shared<DecodeShared<kDim>>();
  const AttentionTile tile = args.tiles[block_index()];
  if (tile.queries == 0) {
    return;
  }
  const std::uint32_t kv_head = block_index_y();
  const std::uint32_t dim = args.pages.head_dim;
  stage_queries<kDim, kBfloat>(
      args, tile, kv_head, 0, {thread_index(), kAttentionThreads}, shared.queries);
  sync_threads();
  const std::uint32_t first =
      (tile.first_range + tile.range) * kRangeTokens + warp_index() * kTileTokens;
  const std::uint32_t low =
      seen_from(tile.first_position + tile.first_query / args.group, args.window).low;
  const std::uint32_t end =
      tile.first_position + (tile.first_query + tile.queries - 1) / args.group + 1;
  attend_tile<kDim, kBfloat>(args,
                             tile,
                             {tile.table, args.first_kv_head + kv_head, first, end},
                             first < end && first + kTileTokens > low,
                             shared.queries,
                             shared.warps[warp_index()]);
  sync_threads();
  for (unsigned i = thread_index(); i < tile.queries * (dim + 1); i += kAttentionThreads) {
    const unsigned query = i / (dim + 1);
    const unsigned d = i % (dim + 1);  // the last stands for the sum of weights
    float largest = kMinusInfinity;
    float sum = 0.0F;
    for (const auto& warp : shared.warps) {
      const Join by = join(largest, warp.largest[query]);
      largest = by.largest;
      sum = joined(
          by, sum, d == dim ? warp.sums[query] : float_of(warp.tile.words[query * kDim + d]));
    }
    float* const partial = partial_of(args, tile, tile.range, kv_head, query);
    partial[d] = sum;
    if (d == dim) {
      partial[dim + 1] = largest;
    }
  }
}

// A block for each tile of the plan's `join`.
[[maybe_unused]] static BATON_KERNEL(kAttentionThreads) join_ranges(AttentionArgs args) {
  const AttentionTile tile = args.tiles[block_index()];
  const std::uint32_t kv_head = block_index_y();
  const std::uint32_t dim = args.pages.head_dim;
  for (unsigned i = thread_index(); i < tile.queries * dim; i += kAttentionThreads) {
    const unsigned query = i / dim;
    const unsigned d = i % dim;
    float largest = kMinusInfinity;
    float weights = 0.0F;
    float sum = 0.0F;
    for (std::uint32_t range = 0; range < tile.ranges; ++range) {
      const float* const partial = partial_of(args, tile, range, kv_head, query);
      const Join by = join(largest, partial[dim + 1]);
      largest = by.largest;
      weights = joined(by, weights, partial[dim]);
      sum = joined(by, sum, partial[d]);
    }
    const QueryPlace place = query_place(args, tile, kv_head, query);
    args.out[place.row * args.out_stride + place.head * dim + d] = attended(sum, weights);
  }
}

}  // namespace baton::kernels::cuda
