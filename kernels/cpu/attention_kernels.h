// Paged attention, for any instruction set.
//
// A query's positions are cut at multiples of 256. In a chunk: scores (lanes are positions, one fma
// chain over the head's dimensions), the largest, exponentials, their sum by 16 lanes and one tree,
// and the weighted values (lanes are dimensions, one fma chain over positions, ascending). Chunks
// then join in ascending order, each rescaled to the larger maximum. What belongs to a chunk
// depends on the query's own position alone, so tiles, slices and threads change no bit. A position
// that a query may not see never takes part as a number: its lane is replaced, its value is not
// read.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/row_ops.h"

namespace baton::kernels::cpu {
namespace {

// Positions [low, high) of a chunk that a query sees, relative to the chunk.
struct Span {
  std::size_t low;
  std::size_t high;
};

[[maybe_unused]] static inline Span visible(const AttentionJob& job,
                                            std::uint32_t row,
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

// Where 16 neighbouring positions lie (a block holds a multiple of 16).
template <class T>
struct Granule {
  const T* keys;    // [head_dim] steps of block_tokens
  const T* values;  // [16][head_dim]
};
template <class T>
[[gnu::always_inline]] inline Granule<T> granule(const AttentionJob& job, std::size_t position) {
  const std::size_t tokens = job.block_tokens;
  const std::size_t block = job.blocks[position / tokens];
  const auto* base = reinterpret_cast<const T*>(job.layer + block * job.block_bytes);
  const std::size_t head = std::size_t{job.kv_head} * job.head_dim * tokens;
  const std::size_t in_block = position % tokens;
  return {
      base + head + in_block,
      base + std::size_t{job.kv_heads} * job.head_dim * tokens + head + in_block * job.head_dim};
}

// scores[i][at + lane] = q_i . key for kQueries queries and kVectors granules. q: [dim][q_stride].
// Meanwhile fetches what comes next: the keys of the following granules and these ones' values.
template <class Isa, class T, int kQueries, int kVectors>
[[gnu::noinline]] void score_tile(const Granule<T>* granules,
                                  std::size_t head_dim,
                                  std::size_t block_tokens,
                                  const float* q,
                                  std::size_t q_stride,
                                  float* scores) {
  using F = typename Isa::F;
  F sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Isa::zero();
    }
  }
  const T* keys[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    keys[v] = granules[v].keys;
  }
  const T* next = granules[kVectors].keys;  // the last granules' own again
  [[maybe_unused]] const T* values = granules[0].values;
  for (std::size_t d = 0; d < head_dim; ++d) {
    F key[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      key[v] = Isa::load(keys[v]);
      keys[v] += block_tokens;
    }
    Isa::prefetch(next);
    next += block_tokens;
    if constexpr (sizeof(T) == 2 && kVectors == 2) {
      Isa::prefetch(values + d * 32);  // 32 tokens' values are 64 bytes for each dimension
    }
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      const F query = Isa::set1(q[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = Isa::fma(query, key[v], sums[i][v]);
      }
    }
    q += q_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(scores + static_cast<std::size_t>(i) * kAttentionChunk + v * kLanes, sums[i][v]);
    }
  }
}

// sums_i[dims] += p_i[t] * value[t][dims] for t in [low, high) of the chunk, kVectors * 16
// dimensions from `dim` on (the last vector may be `tail` wide).
template <class Isa, class T, int kQueries, int kVectors>
[[gnu::noinline]] void value_tile(const Granule<T>* granules,
                                  Span span,
                                  std::size_t head_dim,
                                  std::size_t dim,
                                  const float* p,
                                  float* out,
                                  std::size_t out_stride) {
  using F = typename Isa::F;
  F sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = Isa::load(out + static_cast<std::size_t>(i) * out_stride + v * kLanes);
    }
  }
  for (std::size_t t = span.low; t < span.high;) {
    const std::size_t stop = (t / kLanes + 1) * kLanes;
    const std::size_t end = stop < span.high ? stop : span.high;
    const T* values = granules[t / kLanes].values + (t % kLanes) * head_dim + dim;
    for (; t < end; ++t, values += head_dim) {
      F value[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        value[v] = Isa::load(values + v * kLanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kQueries; ++i) {
        const F weight = Isa::set1(p[static_cast<std::size_t>(i) * kAttentionChunk + t]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          sums[i][v] = Isa::fma(weight, value[v], sums[i][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(out + static_cast<std::size_t>(i) * out_stride + v * kLanes, sums[i][v]);
    }
  }
}

// Dimensions that do not fill a vector: one query, one masked vector.
template <class Isa, class T>
void value_tail(const Granule<T>* granules,
                Span span,
                std::size_t head_dim,
                std::size_t dim,
                const float* p,
                float* out) {
  const std::size_t n = head_dim - dim;
  typename Isa::F sum = Isa::load_n(out, n);
  for (std::size_t t = span.low; t < span.high; ++t) {
    const T* values = granules[t / kLanes].values + (t % kLanes) * head_dim + dim;
    sum = Isa::fma(Isa::set1(p[t]), Isa::load_n(values, n), sum);
  }
  Isa::store_n(out, sum, n);
}

template <class Isa, class T, int kVectors, int kQueries = Isa::kQueries>
[[gnu::always_inline]] inline void dispatch_scores(std::size_t queries,
                                                   const Granule<T>* granules,
                                                   const AttentionJob& job,
                                                   const float* q,
                                                   std::size_t q_stride,
                                                   float* scores) {
  if (queries == kQueries) {
    score_tile<Isa, T, kQueries, kVectors>(
        granules, job.head_dim, job.block_tokens, q, q_stride, scores);
  } else if constexpr (kQueries > 1) {
    dispatch_scores<Isa, T, kVectors, kQueries - 1>(queries, granules, job, q, q_stride, scores);
  }
}

template <class Isa, class T, int kVectors, int kQueries = Isa::kQueries>
[[gnu::always_inline]] inline void dispatch_values(std::size_t queries,
                                                   const Granule<T>* granules,
                                                   Span span,
                                                   std::size_t head_dim,
                                                   std::size_t dim,
                                                   const float* p,
                                                   float* out,
                                                   std::size_t out_stride) {
  if (queries == kQueries) {
    value_tile<Isa, T, kQueries, kVectors>(granules, span, head_dim, dim, p, out, out_stride);
  } else if constexpr (kQueries > 1) {
    dispatch_values<Isa, T, kVectors, kQueries - 1>(
        queries, granules, span, head_dim, dim, p, out, out_stride);
  }
}

template <class Isa, class T>
void add_values(const Granule<T>* granules,
                Span span,
                std::size_t head_dim,
                std::size_t queries,
                const float* p,
                float* out,
                std::size_t out_stride) {
  if (span.low >= span.high) {
    return;
  }
  std::size_t dim = 0;
  for (; dim + Isa::kGranules * kLanes <= head_dim; dim += Isa::kGranules * kLanes) {
    dispatch_values<Isa, T, Isa::kGranules>(
        queries, granules, span, head_dim, dim, p, out + dim, out_stride);
  }
  for (; dim + kLanes <= head_dim; dim += kLanes) {
    dispatch_values<Isa, T, 1>(queries, granules, span, head_dim, dim, p, out + dim, out_stride);
  }
  for (std::size_t i = 0; dim < head_dim && i < queries; ++i) {
    value_tail<Isa, T>(
        granules, span, head_dim, dim, p + i * kAttentionChunk, out + i * out_stride + dim);
  }
}

// Scores of one query in a chunk to weights: softcap, mask, exponential. Gives maximum and sum.
template <class Isa>
void soften(float* scores, Span span, float softcap, float* largest, float* total) {
  using F = typename Isa::F;
  constexpr float kLowest = -3.0e38F;
  const std::size_t first = span.low / kLanes * kLanes;
  F top = Isa::set1(kLowest);
  for (std::size_t at = first; at < span.high; at += kLanes) {
    F s = Isa::load(scores + at);
    if (softcap != 0.0F) {
      s = Isa::mul(tanh<Isa>(s), Isa::set1(softcap * kLog2E));
    }
    const std::size_t low = span.low > at ? span.low - at : 0;
    const std::size_t high = span.high - at < kLanes ? span.high - at : kLanes;
    if (low != 0 || high != kLanes) {
      s = Isa::select(Isa::range(low, high), s, Isa::set1(kLowest));
    }
    Isa::store(scores + at, s);
    top = Isa::max(s, top);
  }
  *largest = Isa::largest(top);
  const F minus = Isa::set1(-*largest);
  F sum = Isa::zero();
  for (std::size_t at = first; at < span.high; at += kLanes) {
    F p = exp2<Isa>(Isa::add(Isa::load(scores + at), minus));
    const std::size_t low = span.low > at ? span.low - at : 0;
    const std::size_t high = span.high - at < kLanes ? span.high - at : kLanes;
    if (low != 0 || high != kLanes) {
      p = Isa::select(Isa::range(low, high), p, Isa::zero());
    }
    Isa::store(scores + at, p);
    sum = Isa::add(sum, p);
  }
  *total = Isa::sum_tree(sum);
}

// Queries of some rows and heads, gathered for tiles: [dim][queries], scaled for exp2.
template <class Isa>
void gather_queries(const AttentionJob& job,
                    std::size_t first_row,
                    std::size_t rows,
                    std::size_t first_head,
                    std::size_t heads,
                    float* out) {
  const float factor = job.softcap != 0.0F ? job.scale / job.softcap : job.scale * kLog2E;
  const std::size_t queries = rows * heads;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      const float* q = job.q + (first_row + r) * job.q_stride + (first_head + h) * job.head_dim;
      float* to = out + r * heads + h;
      for (std::size_t d = 0; d < job.head_dim; ++d) {
        to[d * queries] = q[d] * factor;
      }
    }
  }
}

// A query's result so far: weighted values [head_dim], maximum, sum of weights.
[[maybe_unused]] static inline std::size_t partial_floats(const AttentionJob& job) {
  return job.head_dim + 2;
}

// Rows [first_row, first_row + rows) and some heads of one chunk into partials, one a query, in the
// order [row][head]. Rows that see nothing of the chunk are left alone.
template <class Isa, class T>
void chunk_queries(const AttentionJob& job,
                   std::size_t chunk,
                   std::size_t first_row,
                   std::size_t rows,
                   std::size_t heads,
                   const float* q,  // [dim][rows * heads]
                   float* scores,
                   float* partials,
                   std::size_t row_stride) {  // floats from a row's partials to the next row's
  // Rows ascend, so those that see something of the chunk are neighbours.
  std::size_t begin = 0;
  std::size_t end = rows;
  const auto span_of = [&](std::size_t r) {
    return visible(job, static_cast<std::uint32_t>(first_row + r), chunk);
  };
  while (begin < end && span_of(begin).low >= span_of(begin).high) {
    ++begin;
  }
  while (end > begin && span_of(end - 1).low >= span_of(end - 1).high) {
    --end;
  }
  if (begin == end) {
    return;
  }
  const std::size_t all = rows * heads;
  const std::size_t queries = (end - begin) * heads;
  const std::size_t stride = partial_floats(job);
  const Span widest{span_of(begin).low, span_of(end - 1).high};

  Granule<T> granules[kAttentionChunk / kLanes + 1];
  const std::size_t first_granule = widest.low / kLanes;
  const std::size_t end_granule = (widest.high + kLanes - 1) / kLanes;
  for (std::size_t g = first_granule; g < end_granule; ++g) {
    granules[g] = granule<T>(job, chunk * kAttentionChunk + g * kLanes);
  }
  granules[end_granule] = granules[end_granule - 1];
  std::size_t g = first_granule;
  for (; g + Isa::kGranules <= end_granule; g += Isa::kGranules) {
    dispatch_scores<Isa, T, Isa::kGranules>(
        queries, granules + g, job, q + begin * heads, all, scores + g * kLanes);
  }
  for (; g < end_granule; ++g) {
    dispatch_scores<Isa, T, 1>(
        queries, granules + g, job, q + begin * heads, all, scores + g * kLanes);
  }

  Span common{0, kAttentionChunk};
  for (std::size_t r = begin; r < end; ++r) {
    const Span span = span_of(r);
    common.low = span.low > common.low ? span.low : common.low;
    common.high = span.high < common.high ? span.high : common.high;
    for (std::size_t h = 0; h < heads; ++h) {
      float* partial = partials + r * row_stride + h * stride;
      float* p = scores + ((r - begin) * heads + h) * kAttentionChunk;
      soften<Isa>(p, span, job.softcap, partial + job.head_dim, partial + job.head_dim + 1);
      for (std::size_t d = 0; d < job.head_dim; ++d) {
        partial[d] = 0.0F;
      }
    }
  }
  const bool together = common.low < common.high && row_stride == heads * stride;
  const auto one_row = [&](std::size_t r, std::size_t low, std::size_t high) {
    add_values<Isa, T>(granules,
                       {low, high},
                       job.head_dim,
                       heads,
                       scores + (r - begin) * heads * kAttentionChunk,
                       partials + r * row_stride,
                       stride);
  };
  if (!together) {
    for (std::size_t r = begin; r < end; ++r) {
      one_row(r, span_of(r).low, span_of(r).high);
    }
    return;
  }
  for (std::size_t r = begin; r < end; ++r) {
    one_row(r, span_of(r).low, common.low);
  }
  add_values<Isa, T>(
      granules, common, job.head_dim, queries, scores, partials + begin * row_stride, stride);
  for (std::size_t r = begin; r < end; ++r) {
    one_row(r, common.high, span_of(r).high);
  }
}

// Joins a chunk's partial to what came before. Both rescaled to the larger maximum.
template <class Isa>
void join(const AttentionJob& job, const float* partial, float* running) {
  using F = typename Isa::F;
  const std::size_t dim = job.head_dim;
  const float old_top = running[dim];
  const float new_top = partial[dim] > old_top ? partial[dim] : old_top;
  const F keep = exp2<Isa>(Isa::set1(old_top - new_top));
  const F take = exp2<Isa>(Isa::set1(partial[dim] - new_top));
  std::size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    const F old = Isa::mul(Isa::load(running + d), keep);
    Isa::store(running + d, Isa::fma(Isa::load(partial + d), take, old));
  }
  if (d < dim) {
    const F old = Isa::mul(Isa::load_n(running + d, dim - d), keep);
    Isa::store_n(running + d, Isa::fma(Isa::load_n(partial + d, dim - d), take, old), dim - d);
  }
  float lanes[2 * kLanes];
  const F total = Isa::mul(Isa::set1(running[dim + 1]), keep);
  Isa::store(lanes, Isa::fma(Isa::set1(partial[dim + 1]), take, total));
  running[dim] = new_top;
  running[dim + 1] = lanes[0];
}

[[maybe_unused]] static inline void start_running(const AttentionJob& job, float* running) {
  for (std::size_t d = 0; d < job.head_dim; ++d) {
    running[d] = 0.0F;
  }
  running[job.head_dim] = -3.0e38F;
  running[job.head_dim + 1] = 0.0F;
}

template <class Isa>
void finish(const AttentionJob& job, const float* running, float* out) {
  const std::size_t dim = job.head_dim;
  const typename Isa::F total = Isa::set1(running[dim + 1]);
  std::size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Isa::store(out + d, Isa::div(Isa::load(running + d), total));
  }
  if (d < dim) {
    Isa::store_n(out + d, Isa::div(Isa::load_n(running + d, dim - d), total), dim - d);
  }
}

// Cuts rows and heads into tiles of at most Isa::kQueries queries: several whole rows, or a part of
// one row's heads.
template <class Isa, class Body>
void for_query_tiles(const AttentionJob& job, Body body) {
  constexpr std::size_t kMost = Isa::kQueries;
  if (job.group <= kMost) {
    const std::size_t rows = kMost / job.group;
    for (std::size_t r = 0; r < job.rows; r += rows) {
      body(r, job.rows - r < rows ? job.rows - r : rows, std::size_t{0}, std::size_t{job.group});
    }
    return;
  }
  for (std::size_t r = 0; r < job.rows; ++r) {
    for (std::size_t h = 0; h < job.group; h += kMost) {
      body(r, std::size_t{1}, h, job.group - h < kMost ? job.group - h : kMost);
    }
  }
}

// Scratch: [16][chunk] scores, gathered queries, partials and running results of all queries.
struct AttentionScratch {
  float* scores;
  float* gathered;
  float* partials;
  float* running;
};
[[maybe_unused]] static inline AttentionScratch cut_scratch(const AttentionJob& job) {
  const std::size_t queries = std::size_t{job.rows} * job.group;
  AttentionScratch cut;
  cut.scores = job.scratch;
  cut.gathered = cut.scores + 16 * kAttentionChunk;
  cut.partials = cut.gathered + queries * job.head_dim;
  cut.running = cut.partials + queries * partial_floats(job);
  return cut;
}

template <class Isa, class T>
void attend_rows_of(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  const std::size_t stride = partial_floats(job);
  for (std::size_t i = 0; i < std::size_t{job.rows} * job.group; ++i) {
    start_running(job, scratch.running + i * stride);
  }
  const auto gathered_at = [&](std::size_t row, std::size_t head) {
    return scratch.gathered + (row * job.group + head) * job.head_dim;
  };
  for_query_tiles<Isa>(job,
                       [&](std::size_t row, std::size_t rows, std::size_t head, std::size_t heads) {
                         gather_queries<Isa>(job, row, rows, head, heads, gathered_at(row, head));
                       });
  const std::size_t last = job.first_position + job.rows - 1;
  const std::size_t first = job.window != 0 && job.first_position + 1 > job.window
                                ? job.first_position + 1 - job.window
                                : 0;
  for (std::size_t chunk = first / kAttentionChunk; chunk <= last / kAttentionChunk; ++chunk) {
    for_query_tiles<Isa>(
        job, [&](std::size_t row, std::size_t rows, std::size_t head, std::size_t heads) {
          float* partials = scratch.partials + (row * job.group + head) * stride;
          chunk_queries<Isa, T>(job,
                                chunk,
                                row,
                                rows,
                                heads,
                                gathered_at(row, head),
                                scratch.scores,
                                partials,
                                job.group * stride);
          for (std::size_t r = 0; r < rows; ++r) {
            const Span span = visible(job, static_cast<std::uint32_t>(row + r), chunk);
            for (std::size_t h = 0; span.low < span.high && h < heads; ++h) {
              const std::size_t at = r * job.group + h;
              join<Isa>(job,
                        partials + at * stride,
                        scratch.running + ((row * job.group + head) + at) * stride);
            }
          }
        });
  }
  for (std::size_t r = 0; r < job.rows; ++r) {
    for (std::size_t h = 0; h < job.group; ++h) {
      finish<Isa>(job,
                  scratch.running + (r * job.group + h) * stride,
                  job.out + r * job.out_stride + h * job.head_dim);
    }
  }
}

template <class Isa, class T>
void attend_chunk_of(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  const std::size_t stride = partial_floats(job);
  for_query_tiles<Isa>(job,
                       [&](std::size_t row, std::size_t rows, std::size_t head, std::size_t heads) {
                         gather_queries<Isa>(job, row, rows, head, heads, scratch.gathered);
                         chunk_queries<Isa, T>(job,
                                               job.first_chunk,
                                               row,
                                               rows,
                                               heads,
                                               scratch.gathered,
                                               scratch.scores,
                                               job.partials + (row * job.group + head) * stride,
                                               job.group * stride);
                       });
}

template <class Isa>
void attend_rows(const AttentionJob& job) {
  job.half ? attend_rows_of<Isa, std::uint16_t>(job) : attend_rows_of<Isa, float>(job);
}

template <class Isa>
void attend_chunk(const AttentionJob& job) {
  job.half ? attend_chunk_of<Isa, std::uint16_t>(job) : attend_chunk_of<Isa, float>(job);
}

template <class Isa>
void merge_chunks(const AttentionJob& job) {
  const std::size_t stride = partial_floats(job);
  float* running = cut_scratch(job).running;
  for (std::size_t r = 0; r < job.rows; ++r) {
    for (std::size_t h = 0; h < job.group; ++h) {
      start_running(job, running);
      for (std::size_t c = 0; c < job.chunks; ++c) {
        const Span span = visible(job, static_cast<std::uint32_t>(r), job.first_chunk + c);
        if (span.low < span.high) {
          const float* partials = job.partials + c * job.partial_stride;
          join<Isa>(job, partials + (r * job.group + h) * stride, running);
        }
      }
      finish<Isa>(job, running, job.out + r * job.out_stride + h * job.head_dim);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
