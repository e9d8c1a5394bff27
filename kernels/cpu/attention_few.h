// A few queries over stored whole codes (i16, i8), without staging: each key and value goes from
// the arena into registers once and is multiplied there. The sums are the same integers as those
// of `dots`, so the bits are, too.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/attention_dots.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/kv_stage.h"

namespace baton::kernels::cpu {
namespace {

// Vectors of 16 positions or dimensions, at most `most`, whose sums fit the registers beside so
// many queries.
template <class Isa>
constexpr int few_vectors(int queries, int most) {
  return most > 1 && most * queries > Isa::kFewSums ? few_vectors<Isa>(queries, most / 2) : most;
}
constexpr int kKeyVectors = 2;  // 32 positions, mostly all of a block's
constexpr int kValueVectors = 4;

// kVectors of pairs, and sums of their products in order.
template <class Isa, class Element, int kVectors>
[[gnu::always_inline]] inline void take_pairs(const typename Element::T* low,
                                              const typename Element::T* high,
                                              typename Isa::I (&x)[kVectors]) {
  constexpr int kStep = kVectors % Isa::kLoosePairs == 0 ? Isa::kLoosePairs : 1;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v += kStep) {
    if constexpr (kStep == Isa::kLoosePairs) {
      Element::loose(low + v * kLanes, high + v * kLanes, x + v);
    } else {
      x[v] = Element::pairs(low + v * kLanes, high + v * kLanes);
    }
  }
}
template <class Isa, class Element, int kVectors>
[[gnu::always_inline]] inline void tidy_sums(typename Isa::I (&sums)[kVectors]) {
  if constexpr (kVectors % Isa::kLoosePairs == 0) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += Isa::kLoosePairs) {
      Element::tidy(sums + v);
    }
  }
}

// Scores of kVectors granules of one block, from chunk position `at` on.
template <class Isa, KvCode kCode, int kQueries, int kVectors>
[[gnu::always_inline]] inline void score_granules(const AttentionJob& job,
                                                  std::size_t base,
                                                  Span granules,
                                                  std::size_t at,
                                                  const std::int32_t* queries,
                                                  const float* query_scales,
                                                  float* key_scales,
                                                  float* scores) {
  using Element = KvElement<Isa, kCode>;
  using T = typename Element::T;
  using I = typename Isa::I;
  const Granule<T> from = granule<T, true>(job, base + at);
  const Later later =
      what_follows(job, Half::Keys, base, granules.low, granules.high, at, positions_ahead<T>(job));
  const std::byte* ahead = share<T, true>(*later.job, later.half, later.position);
  fetch_scales<Isa, T>(later, kVectors);
  const T* keys = from.keys;
  I sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Isa::iset1(0);
    }
  }
  for (std::size_t d = 0; d < job.head_dim; d += 2, keys += 2 * job.block_tokens) {
    I x[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      ahead = fetch_two_rows<Isa, T>(ahead);
    }
    take_pairs<Isa, Element, kVectors>(keys, keys + job.block_tokens, x);
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = Isa::dot2(sums[i][v], x[v], queries[i]);
      }
      __asm__ volatile("" ::: "memory");  // as in dot_tile
    }
    queries += kQueries;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
    tidy_sums<Isa, Element, kVectors>(sums[i]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const std::size_t place = at + static_cast<std::size_t>(v) * kLanes;
    Isa::store(key_scales + place, stored_scale<Isa, kCode>(from.key_scales + v * kLanes));
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      Isa::store(scores + static_cast<std::size_t>(i) * kAttentionChunk + place,
                 Isa::mul(Isa::to_float(sums[i][v]), Isa::set1(query_scales[i])));
    }
  }
}

template <class Isa, KvCode kCode, int kQueries>
[[gnu::noinline]] void few_scores(const AttentionJob& job,
                                  std::size_t chunk,
                                  Span granules,
                                  const std::int32_t* queries,
                                  const float* query_scales,
                                  float* key_scales,
                                  float* scores) {
  constexpr int kVectors = few_vectors<Isa>(kQueries, kKeyVectors);
  const std::size_t base = chunk * kAttentionChunk;
  for (std::size_t at = granules.low; at < granules.high;) {
    const std::size_t left = job.block_tokens - (base + at) % job.block_tokens;
    if (kVectors == 2 && left > kLanes && at + kLanes < granules.high) {
      score_granules<Isa, kCode, kQueries, kVectors>(
          job, base, granules, at, queries, query_scales, key_scales, scores);
      at += kVectors * kLanes;
    } else {
      score_granules<Isa, kCode, kQueries, 1>(
          job, base, granules, at, queries, query_scales, key_scales, scores);
      at += kLanes;
    }
  }
}

// What is fetched while the values of two positions are multiplied: of two rows a line each `step`.
struct AheadOfValues {
  const std::byte* at;
  std::size_t step;
};
// The same dimensions of later values; behind the last of them those that come next (`next_dim`),
// or, after all dimensions, what follows.
template <class Isa, class T>
[[gnu::always_inline]] inline AheadOfValues ahead_of_values(const AttentionJob& job,
                                                            std::size_t base,
                                                            Span granules,
                                                            std::size_t at,
                                                            std::size_t dim,
                                                            std::size_t next_dim) {
  const std::size_t row = job.head_dim * sizeof(T);
  const std::size_t ahead = positions_ahead<T>(job);
  const auto values = [&](std::size_t place, std::size_t first_dim) {
    return AheadOfValues{share<T, true>(job, Half::Values, base + place) + first_dim * sizeof(T),
                         row};
  };
  if (at + ahead < granules.high) {
    return values(at + ahead, dim);
  }
  if (next_dim < job.head_dim) {
    const std::size_t place = granules.low + (at + ahead - granules.high);
    return values(place < granules.high ? place : granules.low, next_dim);
  }
  const Later later = what_follows(job, Half::Values, base, granules.low, granules.high, at, ahead);
  fetch_scales<Isa, T>(later, 1);
  return {share<T, true>(*later.job, later.half, later.position), 64};
}

// Weighted values of kVectors * 16 dimensions from `dim` on, over all granules.
template <class Isa, KvCode kCode, int kQueries, int kVectors>
[[gnu::always_inline]] inline void weigh_dims(const AttentionJob& job,
                                              std::size_t base,
                                              Span granules,
                                              std::size_t dim,
                                              std::size_t next_dim,
                                              const std::int16_t* weights,
                                              const float* scales,
                                              float* partials) {
  using Element = KvElement<Isa, kCode>;
  using T = typename Element::T;
  using I = typename Isa::I;
  const std::size_t row = job.head_dim * sizeof(T);
  I sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Isa::iset1(0);
    }
  }
  for (std::size_t at = granules.low; at < granules.high; at += kLanes) {
    const T* values = granule<T, true>(job, base + at).values + dim;
    AheadOfValues ahead = ahead_of_values<Isa, T>(job, base, granules, at, dim, next_dim);
    const auto* pairs = reinterpret_cast<const std::int32_t*>(weights + at);
    for (std::size_t t = 0; t < kLanes; t += 2) {
      I x[kVectors];
      for (std::size_t i = 0; i < 2 * row; i += ahead.step) {
        Isa::prefetch_far(ahead.at + i);
      }
      ahead.at += 2 * row;
      take_pairs<Isa, Element, kVectors>(values, values + job.head_dim, x);
      values += 2 * job.head_dim;
#pragma GCC unroll 16
      for (int i = 0; i < kQueries; ++i) {
        const std::int32_t pair = load_pair(pairs + static_cast<std::size_t>(i) * kChunkPairs);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[i][v] = Isa::dot2(sums[i][v], x[v], pair);
        }
        __asm__ volatile("" ::: "memory");
      }
      ++pairs;
    }
  }
  const std::size_t stride = partial_floats(job.head_dim);
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
    tidy_sums<Isa, Element, kVectors>(sums[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(partials + static_cast<std::size_t>(i) * stride + dim + v * kLanes,
                 Isa::mul(Isa::to_float(sums[i][v]), Isa::set1(scales[i])));
    }
  }
}

template <class Isa, KvCode kCode, int kQueries>
[[gnu::noinline]] void few_values(const AttentionJob& job,
                                  std::size_t chunk,
                                  Span granules,
                                  const std::int16_t* weights,
                                  const float* scales,
                                  float* partials) {
  constexpr int kVectors = few_vectors<Isa>(kQueries, kValueVectors);
  const std::size_t base = chunk * kAttentionChunk;
  const auto weigh = [&]<int kWide>(std::size_t dim) __attribute__((always_inline)) {
    weigh_dims<Isa, kCode, kQueries, kWide>(
        job, base, granules, dim, dim + kWide * kLanes, weights, scales, partials);
  };
  std::size_t dim = 0;
  for (; dim + kVectors * kLanes <= job.head_dim; dim += kVectors * kLanes) {
    weigh.template operator()<kVectors>(dim);
  }
  for (; dim < job.head_dim; dim += kLanes) {
    weigh.template operator()<1>(dim);
  }
}

// body(code and count as constants), for whole codes and 1 to Isa::kQueries queries.
template <KvCode kCode_, int kQueries_>
struct FewTag {
  static constexpr KvCode kCode = kCode_;
  static constexpr int kQueries = kQueries_;
};
template <class Isa, int kQueries = Isa::kQueries, class Body>
[[gnu::always_inline]] inline void with_few(KvCode code, std::size_t queries, const Body& body) {
  if (queries == kQueries) {
    code == KvCode::I16 ? body(FewTag<KvCode::I16, kQueries>{})
                        : body(FewTag<KvCode::I8, kQueries>{});
  } else if constexpr (kQueries > 1) {
    with_few<Isa, kQueries - 1>(code, queries, body);
  }
}

// Whole vectors only, so that nothing needs filling up.
[[maybe_unused]] static inline bool fits_registers(const AttentionJob& job) {
  return is_whole(job.code) && job.head_dim % kLanes == 0;
}

}  // namespace
}  // namespace baton::kernels::cpu
