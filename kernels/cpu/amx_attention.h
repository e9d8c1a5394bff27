// Attention of many queries by AMX tiles: the integers of `dots` (attention_dots.h), so the same
// bits.
//
// A tile multiplies bytes. A 16-bit code is 256 * high + low, `high` signed and `low` not, and a
// sum of products of codes 65536 * sum(hh) + 256 * sum(hl + lh) + sum(ll): four tile products into
// three results. Each may wrap, and so may the additions: the whole fits in 32 bits. So 16 x 16
// dot products of 64 codes take 64 cycles where VNNI takes 256.
//
// Only AMX translation units include this. Thread: pure, but for the thread's own tile registers,
// which are free again on return. Failure: none.
#pragma once

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/tile_config.h"

namespace baton::kernels::cpu {
namespace {

constexpr int kAmxQueries = 16;           // a tile's rows
constexpr std::size_t kAmxStep = 64;      // codes in a tile's row
constexpr std::size_t kTileBytes = 1024;  // of a register
constexpr std::size_t kResultInts = 3 * kTileBytes / 4;

// Codes taken apart.
struct CodeBytes {
  std::uint8_t* high;
  std::uint8_t* low;
};
struct AmxScratch {
  AttentionScratch base;
  CodeBytes queries;   // [query][amx_dims]
  CodeBytes keys;      // [16 positions][step of 64 dims][16][16 positions][4 dims]
  CodeBytes values;    // [16 dims][64 positions][16, see value_row][16 dims][4 positions]
  CodeBytes weights;   // [query of the tile][kAttentionChunk], in the order of value_row
  std::int32_t* ints;  // two times three results
};

[[maybe_unused]] static inline AmxScratch cut_amx_scratch(const AttentionJob& job) {
  AmxScratch cut{};
  cut.base = cut_scratch(job);
  std::byte* at = job.scratch + attention_scratch_words(job.group, job.head_dim) * 4;
  const auto take = [&](std::size_t bytes) {
    std::byte* begin = at;
    at += bytes;
    return reinterpret_cast<std::uint8_t*>(begin);
  };
  const std::size_t queries = amx_queries(job.group) * amx_dims(job.head_dim);
  const std::size_t keys = kAttentionChunk * amx_dims(job.head_dim);
  const std::size_t values = kAttentionChunk * dim_vectors(job.head_dim) * kLanes;
  constexpr std::size_t kWeights = kAmxQueries * kAttentionChunk;
  cut.queries = {take(queries), take(queries)};
  cut.keys = {take(keys), take(keys)};
  cut.values = {take(values), take(values)};
  cut.weights = {take(kWeights), take(kWeights)};
  cut.ints = reinterpret_cast<std::int32_t*>(take(2 * kResultInts * 4));
  return cut;
}

// Two pairs of codes a lane, x before y, as four bytes a lane.
[[gnu::always_inline]] inline void split_pairs(__m512i x,
                                               __m512i y,
                                               std::uint8_t* high,
                                               std::uint8_t* low) {
  const __m512i order = _mm512_set4_epi32(0x0F0D0E0C, 0x0B090A08, 0x07050604, 0x03010200);
  x = _mm512_shuffle_epi8(x, order);
  y = _mm512_shuffle_epi8(y, order);
  _mm512_storeu_si512(low, _mm512_mask_blend_epi16(0xAAAAAAAA, x, _mm512_slli_epi32(y, 16)));
  _mm512_storeu_si512(high, _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(x, 16), y));
}

// The staged keys of [low, high), multiples of 16.
inline void split_keys(const AttentionJob& job, Span granules, const AmxScratch& scratch) {
  const std::size_t pairs = dim_pairs(job.head_dim);
  const std::size_t dims = amx_dims(job.head_dim);
  for (std::size_t at = granules.low; at < granules.high; at += kLanes) {
    const std::int32_t* in = scratch.base.staged.keys + at * pairs;
    const auto pair = [&](std::size_t i) __attribute__((always_inline)) {
      return i < pairs ? _mm512_loadu_si512(in + i * kLanes) : _mm512_setzero_si512();
    };
    for (std::size_t d = 0; d < dims; d += 4) {
      const std::size_t to = at * dims + d * kLanes;
      split_pairs(pair(d / 2), pair(d / 2 + 1), scratch.keys.high + to, scratch.keys.low + to);
    }
  }
}

// In which row of a tile four neighbouring positions of 64 lie: where packing puts their weights.
constexpr std::size_t value_row(std::size_t four) {
  return four % 4 * 4 + four / 4;
}
inline void split_values(const AttentionJob& job, Span granules, const AmxScratch& scratch) {
  for (std::size_t v = 0; v < dim_vectors(job.head_dim); ++v) {
    const std::int32_t* in = scratch.base.staged.values + v * kChunkPairs * kLanes;
    for (std::size_t at = granules.low; at < granules.high; at += 4) {
      const std::size_t to = v * kAttentionChunk * kLanes + at / kAmxStep * kTileBytes +
                             value_row(at % kAmxStep / 4) * 64;
      split_pairs(_mm512_loadu_si512(in + at / 2 * kLanes),
                  _mm512_loadu_si512(in + (at / 2 + 1) * kLanes),
                  scratch.values.high + to,
                  scratch.values.low + to);
    }
  }
}

// Weights to bytes, 64 positions at a time; outside of the span 0.
template <class Isa>
void take_byte_codes(Span span,
                     Span granules,
                     const float* weights,
                     float factor,
                     std::uint8_t* high,
                     std::uint8_t* low) {
  const std::size_t first = span.low / kLanes * kLanes;
  for (std::size_t at = granules.low / kAmxStep * kAmxStep; at < granules.high; at += kAmxStep) {
    const auto codes = [&](std::size_t i) __attribute__((always_inline)) {
      const std::size_t place = at + i * kLanes;
      return place >= first && place < span.high
                 ? _mm512_cvtps_epi32(Isa::mul(Isa::load(weights + place), Isa::set1(factor)))
                 : _mm512_setzero_si512();
    };
    const __m512i x = _mm512_packs_epi32(codes(0), codes(1));
    const __m512i y = _mm512_packs_epi32(codes(2), codes(3));
    const __m512i bytes = _mm512_set1_epi16(0xFF);
    _mm512_storeu_si512(
        low + at, _mm512_packus_epi16(_mm512_and_si512(x, bytes), _mm512_and_si512(y, bytes)));
    _mm512_storeu_si512(high + at,
                        _mm512_packus_epi16(_mm512_srli_epi16(x, 8), _mm512_srli_epi16(y, 8)));
  }
}

// Registers: results 0-2 (hh, the mixed ones, ll), left codes 4-5, right codes 6-7.
inline TileConfig code_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    set_tile(config, i, kAmxQueries, 64);
  }
  return config;
}
template <class Tile>
[[gnu::always_inline]] inline void multiply_codes(Tile& tile) {
  tile.template multiply_bytes<0, 4, 6, true, true>();
  tile.template multiply_bytes<1, 4, 7, true, false>();
  tile.template multiply_bytes<2, 5, 7, false, false>();
  tile.template multiply_bytes<1, 5, 6, false, true>();
}
template <class Tile>
[[gnu::always_inline]] inline void zero_results(Tile& tile) {
  tile.template zero<0>();
  tile.template zero<1>();
  tile.template zero<2>();
}

template <class Tile>
[[gnu::always_inline]] inline void store_results(Tile& tile, std::int32_t* ints) {
  tile.template store<0>(ints, 64);
  tile.template store<1>(ints + kTileBytes / 4, 64);
  tile.template store<2>(ints + 2 * kTileBytes / 4, 64);
}

// Stored results of 16 rows as numbers, each row times its scale.
template <class Isa>
[[gnu::always_inline]] inline void join_results(const std::int32_t* ints,
                                                const float* scales,
                                                float* out,
                                                std::size_t out_stride) {
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kAmxQueries; ++r) {
    const __m512i hh = _mm512_loadu_si512(ints + r * kLanes);
    const __m512i mixed = _mm512_loadu_si512(ints + (16 + r) * kLanes);
    const __m512i ll = _mm512_loadu_si512(ints + (32 + r) * kLanes);
    const __m512i all = _mm512_add_epi32(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(hh, 8), mixed), 8), ll);
    Isa::store(out + r * out_stride, Isa::mul(Isa::to_float(all), Isa::set1(scales[r])));
  }
}

// products(i), then join(i, its results), for all i below `count`. A store that waits for its
// product keeps what follows from beginning: products run while the results before are joined.
template <class Tile, class Products, class Join>
[[gnu::always_inline]] inline void for_results(
    Tile& tile, std::size_t count, std::int32_t* ints, const Products& products, const Join& join) {
  std::int32_t* const place[2] = {ints, ints + kResultInts};
  for (std::size_t i = 0; i < count; ++i) {
    zero_results(tile);
    products(i);
    if (i != 0) {
      join(i - 1, place[(i - 1) % 2]);
    }
    store_results(tile, place[i % 2]);
  }
  join(count - 1, place[(count - 1) % 2]);
}

// 16 queries from `first` on over a staged and split chunk. Rows behind `count` give numbers that
// nobody reads.
template <class Isa, class Tile>
void amx_chunk_tile(Tile& tile,
                    const AttentionJob& job,
                    const AmxScratch& scratch,
                    std::size_t chunk,
                    std::size_t first,
                    std::size_t count) {
  const std::size_t end_row = (first + count - 1) / job.group + 1;
  const Span granules = visible_granules(job, first / job.group, end_row, chunk);
  if (granules.empty()) {
    return;
  }
  const AttentionScratch& base = scratch.base;
  const std::size_t dims = amx_dims(job.head_dim);
  for_results(
      tile,
      (granules.high - granules.low) / kLanes,
      scratch.ints,
      [&](std::size_t i) {
        const std::size_t at = granules.low + i * kLanes;
        for (std::size_t d = 0; d < dims; d += kAmxStep) {
          tile.template load<4>(scratch.queries.high + first * dims + d, dims);
          tile.template load<5>(scratch.queries.low + first * dims + d, dims);
          tile.template load<6>(scratch.keys.high + at * dims + d * kLanes, 64);
          tile.template load<7>(scratch.keys.low + at * dims + d * kLanes, 64);
          multiply_codes(tile);
        }
      },
      [&](std::size_t i, const std::int32_t* ints) {
        join_results<Isa>(ints,
                          base.query_scales + first,
                          base.scores + granules.low + i * kLanes,
                          kAttentionChunk);
      });
  float scales[kAmxQueries] = {};
  soften<Isa, kAmxQueries>(job,
                           base,
                           chunk,
                           first,
                           count,
                           base.partials,
                           scales,
                           [&](std::size_t i, Span span, float factor) {
                             take_byte_codes<Isa>(span,
                                                  granules,
                                                  base.scores + i * kAttentionChunk,
                                                  factor,
                                                  scratch.weights.high + i * kAttentionChunk,
                                                  scratch.weights.low + i * kAttentionChunk);
                           });
  for_results(
      tile,
      dim_vectors(job.head_dim),
      scratch.ints,
      [&](std::size_t v) {
        for (std::size_t at = granules.low / kAmxStep * kAmxStep; at < granules.high;
             at += kAmxStep) {
          const std::size_t from = (v * kAttentionChunk + at) * kLanes;
          tile.template load<4>(scratch.weights.high + at, kAttentionChunk);
          tile.template load<5>(scratch.weights.low + at, kAttentionChunk);
          tile.template load<6>(scratch.values.high + from, 64);
          tile.template load<7>(scratch.values.low + from, 64);
          multiply_codes(tile);
        }
      },
      [&](std::size_t v, const std::int32_t* ints) {
        join_results<Isa>(ints, scales, base.partials + v * kLanes, partial_floats(job.head_dim));
      });
}

template <class Isa>
void split_queries(const AttentionJob& job, const AmxScratch& scratch) {
  const std::size_t dims = amx_dims(job.head_dim);
  const std::size_t queries = std::size_t{job.rows} * job.group;
  const std::size_t rounded = (queries + kAmxQueries - 1) / kAmxQueries * kAmxQueries;
  for (std::size_t query = 0; query < rounded; ++query) {
    std::uint8_t* high = scratch.queries.high + query * dims;
    std::uint8_t* low = scratch.queries.low + query * dims;
    scratch.base.query_scales[query] = 0.0F;
    std::int32_t* pairs = scratch.base.queries;
    if (query < queries) {
      query_codes<Isa>(job,
                       job.q + query / job.group * job.q_stride + query % job.group * job.head_dim,
                       1,
                       pairs,
                       scratch.base.query_scales + query);
    }
    for (std::size_t pair = 0; pair < dims / 2; ++pair) {
      const std::int32_t codes =
          query < queries && pair < dim_pairs(job.head_dim) ? pairs[pair] : 0;
      low[2 * pair] = static_cast<std::uint8_t>(codes);
      high[2 * pair] = static_cast<std::uint8_t>(codes >> 8);
      low[2 * pair + 1] = static_cast<std::uint8_t>(codes >> 16);
      high[2 * pair + 1] = static_cast<std::uint8_t>(codes >> 24);
    }
  }
}

// `few`: the AVX-512 kernel, for jobs that fill no tile.
template <class Isa, class Tile>
void amx_attend_rows(const AttentionJob& job, void (*few)(const AttentionJob&)) {
  const std::size_t queries = std::size_t{job.rows} * job.group;
  if (queries < kAmxQueries) {
    few(job);
    return;
  }
  const AmxScratch scratch = cut_amx_scratch(job);
  split_queries<Isa>(job, scratch);
  Tile tile(code_tiles());
  attend_chunks<Isa>(job, scratch.base, [&](std::size_t chunk, const auto& done) {
    const Span all = visible_granules(job, 0, job.rows, chunk);
    if (all.empty()) {
      return;
    }
    stage<Isa>(job, chunk, all.low, all.high, scratch.base.staged);
    split_keys(job, all, scratch);
    split_values(job, all, scratch);
    for (std::size_t first = 0; first < queries; first += kAmxQueries) {
      const std::size_t count = queries - first < kAmxQueries ? queries - first : kAmxQueries;
      amx_chunk_tile<Isa>(tile, job, scratch, chunk, first, count);
      done(first, count);
    }
  });
}

}  // namespace
}  // namespace baton::kernels::cpu
