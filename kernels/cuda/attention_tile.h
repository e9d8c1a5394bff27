// The arithmetic of attention for 16 queries of one warp over one staged tile of 64 positions, the
// same wherever the tile is met:
//   scores   S = Q · Kᵀ on tensor cores, scaled and capped in float32
//   weights  2^(score - the tile's largest), rounded to 16 bits; 0 where a query does not see
//   partial  W · V and W · 1 on tensor cores: a partial result with its own largest score
// Partials join in ascending order by `join`: tiles of a range of 256 positions first, from
// nothing, then ranges, from nothing. A partial that sees nothing leaves what it joins as it is, so
// a query's bits depend on its own position and the keys and values before it alone.
//
// A lane holds, of each 16 x 8 result, columns 2t and 2t + 1 of rows g and g + 8 (device_host.h).
//
// Source: FlashAttention-2 (Dao 2023); split over fixed ranges as in Flash-Decoding.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_stage.h"
#include "kernels/cuda/math.h"

namespace baton::kernels::cuda {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// How partials join: x = x * old + x' * added.
struct Join {
  float largest;
  float old;
  float added;
};
BATON_DEVICE Join join(float largest, float other) {
  const float both = other > largest ? other : largest;
  return {both,
          largest == kMinusInfinity ? 0.0F : exp2_of(largest - both),
          other == kMinusInfinity ? 0.0F : exp2_of(other - both)};
}
BATON_DEVICE float joined(const Join& by, float x, float other) {
  return fma(other, by.added, x * by.old);
}

// 16 queries as pairs of dimensions, four words more a row against bank conflicts.
template <unsigned kDim>
struct StagedQueries {
  static constexpr unsigned kPitch = kDim / 2 + 4;
  std::uint32_t words[kWarpQueries][kPitch];
};

template <bool kBfloat>
BATON_DEVICE void multiply(float (&c)[4],
                           const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2]) {
  if constexpr (kBfloat) {
    mma_bfloat(c, a, b);
  } else {
    mma_half(c, a, b);
  }
}
template <bool kBfloat>
BATON_DEVICE std::uint32_t pair_of(float low, float high) {
  return kBfloat ? bfloat_pair(low, high) : half_pair(low, high);
}

// Query `index` of the tile's: its row's place in q or out is row * stride + this head's first.
struct QueryPlace {
  std::size_t row;
  std::size_t head;
};
BATON_DEVICE QueryPlace query_place(const AttentionArgs& args,
                                    const AttentionTile& tile,
                                    std::uint32_t kv_head,
                                    std::uint32_t index) {
  const std::uint32_t query = tile.first_query + index;
  return {std::size_t{tile.first_row} + query / args.group,
          std::size_t{kv_head} * args.group + query % args.group};
}

// `first`: of the tile's queries, the first staged.
template <unsigned kDim, bool kBfloat>
BATON_DEVICE void stage_queries(const AttentionArgs& args,
                                const AttentionTile& tile,
                                std::uint32_t kv_head,
                                std::uint32_t first,
                                const Crew& crew,
                                StagedQueries<kDim>& staged) {
  constexpr unsigned kPairs = kDim / 2;
  const std::uint32_t dim = args.pages.head_dim;
  for (unsigned task = crew.index; task < kWarpQueries * kPairs; task += crew.size) {
    const unsigned query = task / kPairs;
    const unsigned d = task % kPairs * 2;
    float low = 0.0F;
    float high = 0.0F;
    if (first + query < tile.queries && d < dim) {
      const QueryPlace place = query_place(args, tile, kv_head, first + query);
      const float* const q = args.q + place.row * args.q_stride + place.head * dim + d;
      low = q[0];
      high = d + 1 < dim ? q[1] : 0.0F;
    }
    staged.words[query][d / 2] = pair_of<kBfloat>(low, high);
  }
}

// What the lane's two queries see; nothing where there is no query.
struct LaneSeen {
  Seen rows[2];
};
BATON_DEVICE LaneSeen lane_seen(const AttentionArgs& args,
                                const AttentionTile& tile,
                                std::uint32_t first) {
  LaneSeen seen{};
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    const std::uint32_t index = first + lane_index() / 4 + r * 8;
    if (index < tile.queries) {
      seen.rows[r] =
          seen_from(tile.first_position + (tile.first_query + index) / args.group, args.window);
    }
  }
  return seen;
}

using Scores = float[kTileTokens / 8][4];

template <unsigned kDim, bool kBfloat>
BATON_DEVICE void tile_scores(const StagedQueries<kDim>& queries,
                              const StagedTile<kDim>& tile,
                              Scores& scores) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  BATON_UNROLL
  for (float(&score)[4] : scores) {
    BATON_UNROLL
    for (float& x : score) {
      x = 0.0F;
    }
  }
  BATON_UNROLL_BY_4
  for (unsigned step = 0; step < kDim / 16; ++step) {
    const unsigned pair = step * 8 + t;
    const std::uint32_t a[4] = {queries.words[g][pair],
                                queries.words[g + 8][pair],
                                queries.words[g][pair + 4],
                                queries.words[g + 8][pair + 4]};
    BATON_UNROLL
    for (unsigned n = 0; n < kTileTokens / 8; ++n) {
      const std::uint32_t b[2] = {tile.words[pair * kKeyPitch + n * 8 + g],
                                  tile.words[(pair + 4) * kKeyPitch + n * 8 + g]};
      multiply<kBfloat>(scores[n], a, b);
    }
  }
}

// The lane's rows: largest score, and weights as fragments of the next product.
struct Weights {
  float largest[2];
  std::uint32_t pairs[kTileTokens / 16][4];
};

template <bool kBfloat, unsigned kDim>
BATON_DEVICE void tile_weights(const AttentionArgs& args,
                               const LaneSeen& seen,
                               std::uint32_t first_position,
                               const StagedTile<kDim>& tile,
                               Scores& scores,
                               Weights& out) {
  const unsigned t = lane_index() % 4;
  const auto sees = [&](unsigned n, unsigned i) {
    const std::uint32_t position = first_position + n * 8 + t * 2 + i % 2;
    return position >= seen.rows[i / 2].low && position < seen.rows[i / 2].high;
  };
  out.largest[0] = kMinusInfinity;
  out.largest[1] = kMinusInfinity;
  BATON_UNROLL
  for (unsigned n = 0; n < kTileTokens / 8; ++n) {
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned token = n * 8 + t * 2 + i % 2;
      float x = scores[n][i] * tile.key_scales[token];
      x = args.softcap == 0.0F ? x * (args.scale * kLog2E)
                               : args.softcap * tanh_of(x * (args.scale / args.softcap)) * kLog2E;
      x += tile.spoiled[token];
      scores[n][i] = x;
      if (sees(n, i) && x > out.largest[i / 2]) {
        out.largest[i / 2] = x;
      }
    }
  }
  BATON_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    BATON_UNROLL
    for (unsigned step = 1; step <= 2; step *= 2) {
      const float other = shuffle_xor(out.largest[r], step);
      out.largest[r] = other > out.largest[r] ? other : out.largest[r];
    }
  }
  BATON_UNROLL
  for (unsigned n = 0; n < kTileTokens / 8; ++n) {
    BATON_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      float pair[2];
      BATON_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        pair[i] = sees(n, r * 2 + i) ? exp2_of(scores[n][r * 2 + i] - out.largest[r]) : 0.0F;
      }
      out.pairs[n / 2][n % 2 * 2 + r] = pair_of<kBfloat>(pair[0], pair[1]);
    }
  }
}

// Sums of the lane's two rows of weights, as rounded.
template <bool kBfloat>
BATON_DEVICE void weight_sums(const Weights& weights, float (&sums)[2]) {
  constexpr std::uint32_t kOnes = kBfloat ? 0x3F803F80U : 0x3C003C00U;
  const std::uint32_t ones[2] = {kOnes, kOnes};
  float c[4] = {};
  BATON_UNROLL
  for (unsigned step = 0; step < kTileTokens / 16; ++step) {
    multiply<kBfloat>(c, weights.pairs[step], ones);
  }
  sums[0] = c[0];
  sums[1] = c[2];
}

// Dimensions [8n, 8n + 8) of weights times values.
template <unsigned kDim, bool kBfloat>
BATON_DEVICE void weighted_values(const Weights& weights,
                                  const StagedTile<kDim>& tile,
                                  unsigned n,
                                  float (&c)[4]) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  for (float& x : c) {
    x = 0.0F;
  }
  BATON_UNROLL
  for (unsigned step = 0; step < kTileTokens / 16; ++step) {
    const unsigned pair = step * 8 + t;
    const std::uint32_t b[2] = {tile.words[pair * kValuePitch<kDim> + n * 8 + g],
                                tile.words[(pair + 4) * kValuePitch<kDim> + n * 8 + g]};
    multiply<kBfloat>(c, weights.pairs[step], b);
  }
}

// What leaves attention: no negative zero, whose sign would tell how tiles were met.
BATON_DEVICE float attended(float sum, float weights) {
  return sum / weights + 0.0F;
}

}  // namespace baton::kernels::cuda
