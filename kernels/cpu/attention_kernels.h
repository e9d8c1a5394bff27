// Paged attention, for any instruction set.
//
// A query's positions are cut at multiples of 256. In a chunk both products are dot products of
// 16-bit codes, which are exact in any order: query times keys, then weights times values. A query
// has one scale, so have a chunk's weights, and so have each token's key and value (kv_stage.h).
// Floating point is what lies between: scores, the largest, exponentials, their sum by 16 lanes and
// one tree. Chunks then join in ascending order, each rescaled to the larger maximum. What belongs
// to a chunk depends on the query's own position alone, so tiles, slices and threads change no bit.
// A position that a query may not see has weight 0; what is stored there is never read as a number.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kv_stage.h"
#include "kernels/cpu/row_ops.h"

namespace baton::kernels::cpu {
namespace {

// Positions [low, high) of a chunk that a query sees, relative to the chunk.
struct Span {
  std::size_t low;
  std::size_t high;
  bool empty() const { return low >= high; }
};

[[maybe_unused]] static inline Span visible(const AttentionJob& job,
                                            std::size_t row,
                                            std::size_t chunk) {
  const std::size_t position = job.first_position + row;
  const std::size_t first =
      job.window != 0 && position + 1 > job.window ? position + 1 - job.window : 0;
  const std::size_t base = chunk * kAttentionChunk;
  const std::size_t low = first > base ? first - base : 0;
  const std::size_t end = position + 1 > base ? position + 1 - base : 0;
  const std::size_t high = end < kAttentionChunk ? end : kAttentionChunk;
  return {low < high ? low : high, high};
}

// What any of the rows [first, end) sees, at granule borders.
[[maybe_unused]] static inline Span visible_granules(const AttentionJob& job,
                                                     std::size_t first,
                                                     std::size_t end,
                                                     std::size_t chunk) {
  Span all{kAttentionChunk, 0};
  for (std::size_t row = first; row < end; ++row) {
    const Span span = visible(job, row, chunk);
    if (!span.empty()) {
      all.low = span.low < all.low ? span.low : all.low;
      all.high = span.high > all.high ? span.high : all.high;
    }
  }
  return {all.low / kLanes * kLanes, (all.high + kLanes - 1) / kLanes * kLanes};
}

// out[i][v * 16 + lane] = row_scales[i] * sum over pairs of a_i[pair] . b[v][pair][lane], for
// kQueries rows and kVectors vectors. A row's pairs lie kQueries apart (rows side by side) or next
// to each other, kChunkPairs from row to row.
enum class Rows : std::uint8_t { SideBySide, Apart };
// Codes are stored one by one and read in pairs.
[[gnu::always_inline]] inline std::int32_t load_pair(const std::int32_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}
template <class Isa, Rows kRows, int kQueries, int kVectors>
[[gnu::noinline]] void dot_tile(const std::int32_t* a,
                                const std::int32_t* b,
                                std::size_t b_stride,
                                std::size_t pairs,
                                const float* row_scales,
                                float* out,
                                std::size_t out_stride) {
  using I = typename Isa::I;
  constexpr std::size_t kPairStep = kRows == Rows::SideBySide ? kQueries : 1;
  constexpr std::size_t kRowStep = kRows == Rows::SideBySide ? 1 : kChunkPairs;
  I sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Isa::iset1(0);
    }
  }
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    I x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      x[v] = Isa::iload(b + v * b_stride);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] =
            Isa::dot2(sums[i][v], x[v], load_pair(a + static_cast<std::size_t>(i) * kRowStep));
      }
      // Keeps the compiler from fetching all rows' codes first: sums would lose their registers.
      __asm__ volatile("" ::: "memory");
    }
    a += kPairStep;
    b += kLanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(out + static_cast<std::size_t>(i) * out_stride + v * kLanes,
                 Isa::mul(Isa::to_float(sums[i][v]), Isa::set1(row_scales[i])));
    }
  }
}

template <class Isa, Rows kRows, int kVectors, int kQueries = Isa::kQueries>
[[gnu::always_inline]] inline void dot_rows(std::size_t queries,
                                            const std::int32_t* a,
                                            const std::int32_t* b,
                                            std::size_t b_stride,
                                            std::size_t pairs,
                                            const float* row_scales,
                                            float* out,
                                            std::size_t out_stride) {
  if (queries == kQueries) {
    dot_tile<Isa, kRows, kQueries, kVectors>(a, b, b_stride, pairs, row_scales, out, out_stride);
  } else if constexpr (kQueries > 1) {
    dot_rows<Isa, kRows, kVectors, kQueries - 1>(
        queries, a, b, b_stride, pairs, row_scales, out, out_stride);
  }
}

// `vectors` of them, b_stride apart; out side by side.
template <class Isa, Rows kRows>
void dots(std::size_t queries,
          std::size_t vectors,
          const std::int32_t* a,
          const std::int32_t* b,
          std::size_t b_stride,
          std::size_t pairs,
          const float* row_scales,
          float* out,
          std::size_t out_stride) {
  std::size_t v = 0;
  for (; v + Isa::kGranules <= vectors; v += Isa::kGranules) {
    dot_rows<Isa, kRows, Isa::kGranules>(
        queries, a, b + v * b_stride, b_stride, pairs, row_scales, out + v * kLanes, out_stride);
  }
  for (; v < vectors; ++v) {
    dot_rows<Isa, kRows, 1>(
        queries, a, b + v * b_stride, b_stride, pairs, row_scales, out + v * kLanes, out_stride);
  }
}

// The factor that turns numbers into codes of at most 16 bits whose magnitudes add up to no more
// than `limit`. NaN where any number is none.
[[maybe_unused]] static inline float row_factor(float largest, float sum, float limit) {
  const float top = kLeastMagnitude > largest ? kLeastMagnitude : largest;
  const float all = kLeastMagnitude > sum ? kLeastMagnitude : sum;
  const float by_sum = limit / all;
  const float by_top = 32767.0F / top;
  return by_top < by_sum ? by_top : by_sum;
}

// 2^x for x up to 0, relative error below 4e-6; a NaN stays one. Clamped at -126.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F weight(typename Isa::F x) {
  using F = typename Isa::F;
  const F magic = Isa::set1(12582912.0F);  // 1.5 * 2^23
  x = Isa::max(Isa::set1(-126.0F), x);
  const F shifted = Isa::add(x, magic);
  const F f = Isa::sub(x, Isa::sub(shifted, magic));
  F p = Isa::set1(0.00133908633F);
  p = Isa::fma(p, f, Isa::set1(0.00961808302F));
  p = Isa::fma(p, f, Isa::set1(0.0555035695F));
  p = Isa::fma(p, f, Isa::set1(0.240226507F));
  p = Isa::fma(p, f, Isa::set1(0.693147182F));
  p = Isa::fma(p, f, Isa::set1(1.0F));
  return Isa::add_exponent(p, Isa::bits(shifted));
}

// `yes` where a query sees the positions at + lane, `no` elsewhere.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F where_seen(Span span,
                                                         std::size_t at,
                                                         typename Isa::F yes,
                                                         typename Isa::F no) {
  const std::size_t low = span.low > at ? span.low - at : 0;
  const std::size_t high = span.high - at < kLanes ? span.high - at : kLanes;
  return low != 0 || high != kLanes ? Isa::select(Isa::range(low, high), yes, no) : yes;
}

// The three passes over one query's scores in a chunk. A tile's queries take each pass together, so
// that one's reductions hide behind the others' work.
//
// Keys' scales, softcap, mask. Returns the largest score.
template <class Isa>
float finish_scores(const AttentionJob& job, Span span, const float* key_scales, float* scores) {
  using F = typename Isa::F;
  const F lowest = Isa::set1(-3.0e38F);
  F top = lowest;
  for (std::size_t at = span.low / kLanes * kLanes; at < span.high; at += kLanes) {
    F s = Isa::mul(Isa::load(scores + at), Isa::load(key_scales + at));
    if (job.softcap != 0.0F) {
      s = Isa::mul(tanh<Isa>(s), Isa::set1(job.softcap * kLog2E));
    }
    s = where_seen<Isa>(span, at, s, lowest);
    Isa::store(scores + at, s);
    top = Isa::max(s, top);
  }
  return Isa::largest(top);
}

// Scores become weights times the values' scales. Gives the weights' sum and the factor of codes.
template <class Isa>
void take_weights(const AttentionJob& job,
                  Span span,
                  const float* value_scales,
                  float largest,
                  float* scores,
                  float* total,
                  float* factor) {
  using F = typename Isa::F;
  const F minus = Isa::set1(-largest);
  F sum = Isa::zero();
  F scaled_sum = Isa::zero();
  F scaled_top = Isa::zero();
  for (std::size_t at = span.low / kLanes * kLanes; at < span.high; at += kLanes) {
    const F p = where_seen<Isa>(
        span, at, weight<Isa>(Isa::add(Isa::load(scores + at), minus)), Isa::zero());
    const F w = where_seen<Isa>(span, at, Isa::mul(p, Isa::load(value_scales + at)), Isa::zero());
    Isa::store(scores + at, w);
    sum = Isa::add(sum, p);
    scaled_sum = Isa::add(scaled_sum, w);
    scaled_top = Isa::max(w, scaled_top);
  }
  *total = Isa::sum_tree(sum);
  *factor =
      row_factor(Isa::largest(scaled_top), Isa::sum_tree(scaled_sum), code_sum_limit(job.code));
}

// Weights to codes, 0 in what else there is of `granules`.
template <class Isa>
void take_codes(Span span, Span granules, const float* weights, float factor, std::int16_t* codes) {
  std::size_t at = granules.low;
  const auto blank = [&](std::size_t end) {
    for (; at < end; at += kLanes) {
      Isa::store_short(codes + at, Isa::zero());
    }
  };
  blank(span.low / kLanes * kLanes);
  for (; at < span.high; at += kLanes) {
    Isa::store_short(codes + at, Isa::mul(Isa::load(weights + at), Isa::set1(factor)));
  }
  blank(granules.high);
}

// A query's codes and scale, the latter for scores of exp2. out: a pair each `step`.
template <class Isa>
void query_codes(
    const AttentionJob& job, const float* q, std::size_t step, std::int32_t* out, float* scale) {
  using F = typename Isa::F;
  const std::size_t dim = job.head_dim;
  typename Isa::I top = Isa::iset1(0);
  F sum = Isa::zero();
  for (std::size_t d = 0; d < dim; d += kLanes) {
    const F x = dim - d < kLanes ? Isa::load_n(q + d, dim - d) : Isa::load(q + d);
    top = Isa::magnitudes(top, x);
    sum = Isa::add(sum, Isa::as_float(Isa::magnitudes(Isa::iset1(0), x)));
  }
  const float factor = row_factor(__builtin_bit_cast(float, Isa::largest_lane(top)),
                                  Isa::sum_tree(sum),
                                  code_sum_limit(job.code));
  const float unit = job.softcap != 0.0F ? job.scale / job.softcap : job.scale * kLog2E;
  *scale = unit / factor;
  for (std::size_t d = 0; d < dim; d += kLanes) {
    const F x = dim - d < kLanes ? Isa::load_n(q + d, dim - d) : Isa::load(q + d);
    std::int16_t codes[kLanes];
    Isa::store_short(codes, Isa::mul(x, Isa::set1(factor)));
    for (std::size_t i = 0; i < kLanes && d + i < dim; i += 2, out += step) {
      __builtin_memcpy(out, codes + i, sizeof(*out));
    }
  }
}

// Everything one job needs, cut out of its thread's scratch.
struct AttentionScratch {
  Staged staged;
  float* scores;          // [kQueries][kAttentionChunk]
  std::int16_t* weights;  // [kQueries][kAttentionChunk]
  float* partials;        // [kQueries][partial_floats]
  std::int32_t* queries;  // tile after tile: [pair][queries of the tile]
  float* query_scales;    // [queries]
  float* running;         // [queries][partial_floats]
};
[[maybe_unused]] static inline AttentionScratch cut_scratch(const AttentionJob& job) {
  constexpr std::size_t kTile = 16;  // at least any Isa::kQueries
  std::byte* at = job.scratch;
  const auto take = [&](std::size_t words) {
    std::byte* begin = at;
    at += words * 4;
    return begin;
  };
  const std::size_t queries = std::size_t{job.rows} * job.group;
  const std::size_t pairs = dim_pairs(job.head_dim);
  AttentionScratch cut;
  cut.staged.keys = reinterpret_cast<std::int32_t*>(take(kAttentionChunk * pairs));
  cut.staged.values =
      reinterpret_cast<std::int32_t*>(take(kChunkPairs * kLanes * dim_vectors(job.head_dim)));
  cut.staged.key_scales = reinterpret_cast<float*>(take(kAttentionChunk));
  cut.staged.value_scales = reinterpret_cast<float*>(take(kAttentionChunk));
  cut.scores = reinterpret_cast<float*>(take(kTile * kAttentionChunk));
  cut.weights = reinterpret_cast<std::int16_t*>(take(kTile * kAttentionChunk / 2));
  cut.partials = reinterpret_cast<float*>(take(kTile * partial_floats(job.head_dim)));
  cut.running = reinterpret_cast<float*>(take(queries * partial_floats(job.head_dim)));
  cut.queries = reinterpret_cast<std::int32_t*>(take(queries * pairs));
  cut.query_scales = reinterpret_cast<float*>(take(queries));
  return cut;
}

// Queries [first, first + count) of the job, in the order [row][head], over one staged chunk into
// partials, one a query. Those of rows that see nothing of it are left alone.
template <class Isa>
void chunk_tile(const AttentionJob& job,
                const AttentionScratch& scratch,
                std::size_t chunk,
                std::size_t first,
                std::size_t count,
                float* partials) {
  const std::size_t end_row = (first + count - 1) / job.group + 1;
  const Span granules = visible_granules(job, first / job.group, end_row, chunk);
  if (granules.empty()) {
    return;
  }
  const std::size_t pairs = dim_pairs(job.head_dim);
  const std::size_t stride = partial_floats(job.head_dim);
  const Staged& staged = scratch.staged;
  dots<Isa, Rows::SideBySide>(count,
                              (granules.high - granules.low) / kLanes,
                              scratch.queries + first * pairs,
                              staged.keys + granules.low * pairs,
                              pairs * kLanes,
                              pairs,
                              scratch.query_scales + first,
                              scratch.scores + granules.low,
                              kAttentionChunk);
  const std::size_t tail = stride - kLanes;
  Span spans[Isa::kQueries];
  float factors[Isa::kQueries] = {};
  float scales[Isa::kQueries] = {};
  for (std::size_t i = 0; i < count; ++i) {
    spans[i] = visible(job, (first + i) / job.group, chunk);
    if (!spans[i].empty()) {
      partials[i * stride + tail] = finish_scores<Isa>(
          job, spans[i], staged.key_scales, scratch.scores + i * kAttentionChunk);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!spans[i].empty()) {
      float* partial = partials + i * stride + tail;
      take_weights<Isa>(job,
                        spans[i],
                        staged.value_scales,
                        partial[0],
                        scratch.scores + i * kAttentionChunk,
                        partial + 1,
                        factors + i);
      scales[i] = 1.0F / factors[i];
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!spans[i].empty()) {
      take_codes<Isa>(spans[i],
                      granules,
                      scratch.scores + i * kAttentionChunk,
                      factors[i],
                      scratch.weights + i * kAttentionChunk);
    }
  }
  dots<Isa, Rows::Apart>(count,
                         dim_vectors(job.head_dim),
                         reinterpret_cast<const std::int32_t*>(scratch.weights + granules.low),
                         staged.values + granules.low / 2 * kLanes,
                         kChunkPairs * kLanes,
                         (granules.high - granules.low) / 2,
                         scales,
                         partials,
                         stride);
}

// Joins a chunk's partial to what came before. Both rescaled to the larger maximum.
template <class Isa>
void join(const AttentionJob& job, const float* partial, float* running) {
  using F = typename Isa::F;
  const std::size_t tail = partial_floats(job.head_dim) - kLanes;
  const float old_top = running[tail];
  const float new_top = partial[tail] > old_top ? partial[tail] : old_top;
  const F keep = weight<Isa>(Isa::set1(old_top - new_top));
  const F take = weight<Isa>(Isa::set1(partial[tail] - new_top));
  for (std::size_t d = 0; d < tail; d += kLanes) {
    const F old = Isa::mul(Isa::load(running + d), keep);
    Isa::store(running + d, Isa::fma(Isa::load(partial + d), take, old));
  }
  float lanes[kLanes];
  const F total = Isa::mul(Isa::set1(running[tail + 1]), keep);
  Isa::store(lanes, Isa::fma(Isa::set1(partial[tail + 1]), take, total));
  running[tail] = new_top;
  running[tail + 1] = lanes[0];
}

[[maybe_unused]] static inline void start_running(const AttentionJob& job, float* running) {
  const std::size_t tail = partial_floats(job.head_dim) - kLanes;
  for (std::size_t d = 0; d < tail; ++d) {
    running[d] = 0.0F;
  }
  running[tail] = -3.0e38F;
  running[tail + 1] = 0.0F;
}

template <class Isa>
void finish(const AttentionJob& job, const float* running, float* out) {
  const std::size_t dim = job.head_dim;
  const typename Isa::F total = Isa::set1(running[partial_floats(dim) - kLanes + 1]);
  std::size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Isa::store(out + d, Isa::div(Isa::load(running + d), total));
  }
  if (d < dim) {
    Isa::store_n(out + d, Isa::div(Isa::load(running + d), total), dim - d);
  }
}

// body(first query, how many) for all of a job's queries, ascending.
template <class Isa, class Body>
void for_query_tiles(const AttentionJob& job, Body body) {
  const std::size_t queries = std::size_t{job.rows} * job.group;
  constexpr std::size_t kMost = Isa::kQueries;
  for (std::size_t first = 0; first < queries; first += kMost) {
    body(first, queries - first < kMost ? queries - first : kMost);
  }
}

template <class Isa>
void prepare_queries(const AttentionJob& job, const AttentionScratch& scratch) {
  const std::size_t pairs = dim_pairs(job.head_dim);
  for_query_tiles<Isa>(job, [&](std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t query = first + i;
      query_codes<Isa>(job,
                       job.q + query / job.group * job.q_stride + query % job.group * job.head_dim,
                       count,
                       scratch.queries + first * pairs + i,
                       scratch.query_scales + query);
    }
  });
}

template <class Isa>
void attend_rows(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  const std::size_t stride = partial_floats(job.head_dim);
  const std::size_t queries = std::size_t{job.rows} * job.group;
  prepare_queries<Isa>(job, scratch);
  for (std::size_t i = 0; i < queries; ++i) {
    start_running(job, scratch.running + i * stride);
  }
  const std::size_t last = job.first_position + job.rows - 1;
  const std::size_t first = job.window != 0 && job.first_position + 1 > job.window
                                ? job.first_position + 1 - job.window
                                : 0;
  for (std::size_t chunk = first / kAttentionChunk; chunk <= last / kAttentionChunk; ++chunk) {
    const Span all = visible_granules(job, 0, job.rows, chunk);
    if (all.empty()) {
      continue;
    }
    stage<Isa>(job, chunk, all.low, all.high, scratch.staged);
    for_query_tiles<Isa>(job, [&](std::size_t at, std::size_t count) {
      chunk_tile<Isa>(job, scratch, chunk, at, count, scratch.partials);
      for (std::size_t i = 0; i < count; ++i) {
        if (!visible(job, (at + i) / job.group, chunk).empty()) {
          join<Isa>(job, scratch.partials + i * stride, scratch.running + (at + i) * stride);
        }
      }
    });
  }
  for (std::size_t i = 0; i < queries; ++i) {
    finish<Isa>(job,
                scratch.running + i * stride,
                job.out + i / job.group * job.out_stride + i % job.group * job.head_dim);
  }
}

template <class Isa>
void attend_chunk(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  const std::size_t stride = partial_floats(job.head_dim);
  const Span all = visible_granules(job, 0, job.rows, job.first_chunk);
  if (all.empty()) {
    return;
  }
  prepare_queries<Isa>(job, scratch);
  stage<Isa>(job, job.first_chunk, all.low, all.high, scratch.staged);
  for_query_tiles<Isa>(job, [&](std::size_t first, std::size_t count) {
    chunk_tile<Isa>(job, scratch, job.first_chunk, first, count, job.partials + first * stride);
  });
}

template <class Isa>
void merge_chunks(const AttentionJob& job) {
  const std::size_t stride = partial_floats(job.head_dim);
  float* running = cut_scratch(job).running;
  for (std::size_t i = 0; i < std::size_t{job.rows} * job.group; ++i) {
    start_running(job, running);
    for (std::size_t c = 0; c < job.chunks; ++c) {
      if (!visible(job, i / job.group, job.first_chunk + c).empty()) {
        join<Isa>(job, job.partials + c * job.partial_stride + i * stride, running);
      }
    }
    finish<Isa>(
        job, running, job.out + i / job.group * job.out_stride + i % job.group * job.head_dim);
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
