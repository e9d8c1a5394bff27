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

#include "kernels/cpu/attention_dots.h"
#include "kernels/cpu/attention_few.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/kv_stage.h"

namespace baton::kernels::cpu {
namespace {

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

// Queries [first, first + count) of the job, at most kMost, in the order [row][head]: their scores
// to weights. The largest score and the sum of weights go into partials, one a query; scales: what
// the codes are multiplied with. take(query, span, factor) then makes codes of the weights that
// have taken the scores' place.
template <class Isa, int kMost, class Take>
void soften(const AttentionJob& job,
            const AttentionScratch& scratch,
            std::size_t chunk,
            std::size_t first,
            std::size_t count,
            float* partials,
            float* scales,
            const Take& take) {
  const Staged& staged = scratch.staged;
  const std::size_t stride = partial_floats(job.head_dim);
  const std::size_t tail = stride - kLanes;
  Span spans[kMost];
  float factors[kMost] = {};
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
      take(i, spans[i], factors[i]);
    }
  }
}

// The same with codes of 16 bits in all of the chunk's `granules`.
template <class Isa>
void soften(const AttentionJob& job,
            const AttentionScratch& scratch,
            std::size_t chunk,
            Span granules,
            std::size_t first,
            std::size_t count,
            float* partials,
            float* scales) {
  soften<Isa, Isa::kQueries>(job,
                             scratch,
                             chunk,
                             first,
                             count,
                             partials,
                             scales,
                             [&](std::size_t i, Span span, float factor) {
                               take_codes<Isa>(span,
                                               granules,
                                               scratch.scores + i * kAttentionChunk,
                                               factor,
                                               scratch.weights + i * kAttentionChunk);
                             });
}

// The same queries over one staged chunk into partials. Those of rows that see nothing of it are
// left alone.
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
  const Staged& staged = scratch.staged;
  float scales[Isa::kQueries] = {};
  dots<Isa, Rows::SideBySide>(count,
                              (granules.high - granules.low) / kLanes,
                              scratch.queries + first * pairs,
                              staged.keys + granules.low * pairs,
                              pairs * kLanes,
                              pairs,
                              scratch.query_scales + first,
                              scratch.scores + granules.low,
                              kAttentionChunk);
  soften<Isa>(job, scratch, chunk, granules, first, count, partials, scales);
  dots<Isa, Rows::Apart>(count,
                         dim_vectors(job.head_dim),
                         reinterpret_cast<const std::int32_t*>(scratch.weights + granules.low),
                         staged.values + granules.low / 2 * kLanes,
                         kChunkPairs * kLanes,
                         (granules.high - granules.low) / 2,
                         scales,
                         partials,
                         partial_floats(job.head_dim));
}

// All of a job's queries, so few that each key and value is used once: nothing is staged for longer
// than a strip.
template <class Isa>
void chunk_in_strips(const AttentionJob& job,
                     const AttentionScratch& scratch,
                     std::size_t chunk,
                     Span granules,
                     float* partials) {
  const std::size_t count = std::size_t{job.rows} * job.group;
  const std::size_t pairs = dim_pairs(job.head_dim);
  const std::size_t length = strip_positions(job.head_dim);
  const Staged& staged = scratch.staged;
  float scales[Isa::kQueries] = {};
  const auto for_strips = [&](Half half, const auto& body) {
    for (std::size_t at = granules.low; at < granules.high; at += length) {
      const std::size_t end = at + length < granules.high ? at + length : granules.high;
      stage_strip<Isa>(job, chunk, half, {granules.low, granules.high, at, end}, staged);
      body(at, end);
    }
  };
  for_strips(Half::Keys, [&](std::size_t at, std::size_t end) {
    dots<Isa, Rows::SideBySide>(count,
                                (end - at) / kLanes,
                                scratch.queries,
                                staged.keys,
                                pairs * kLanes,
                                pairs,
                                scratch.query_scales,
                                scratch.scores + at,
                                kAttentionChunk);
  });
  load_value_scales<Isa>(job, chunk, granules.low, granules.high, staged.value_scales);
  soften<Isa>(job, scratch, chunk, granules, 0, count, partials, scales);
  for_strips(Half::Values, [&](std::size_t at, std::size_t end) {
    dots<Isa, Rows::Apart>(count,
                           dim_vectors(job.head_dim),
                           reinterpret_cast<const std::int32_t*>(scratch.weights + at),
                           staged.values,
                           length / 2 * kLanes,
                           (end - at) / 2,
                           scales,
                           partials,
                           partial_floats(job.head_dim),
                           {at == granules.low, end == granules.high});
  });
}

// The same where the instruction set multiplies keys and values as they come from the arena.
template <class Isa>
void chunk_in_registers(const AttentionJob& job,
                        const AttentionScratch& scratch,
                        std::size_t chunk,
                        Span granules,
                        float* partials) {
  const std::size_t count = std::size_t{job.rows} * job.group;
  const Staged& staged = scratch.staged;
  float scales[Isa::kQueries] = {};
  with_few<Isa>(job.code, count, [&](auto few) {
    few_scores<Isa, few.kCode, few.kQueries>(job,
                                             chunk,
                                             granules,
                                             scratch.queries,
                                             scratch.query_scales,
                                             staged.key_scales,
                                             scratch.scores);
  });
  load_value_scales<Isa>(job, chunk, granules.low, granules.high, staged.value_scales);
  soften<Isa>(job, scratch, chunk, granules, 0, count, partials, scales);
  with_few<Isa>(job.code, count, [&](auto few) {
    few_values<Isa, few.kCode, few.kQueries>(
        job, chunk, granules, scratch.weights, scales, partials);
  });
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

// One chunk for all of a job's queries: done(first query, how many) follows their partials, which
// go to partials(first query).
template <class Isa, class Partials, class Done>
void over_chunk(const AttentionJob& job,
                const AttentionScratch& scratch,
                std::size_t chunk,
                const Partials& partials,
                const Done& done) {
  const Span all = visible_granules(job, 0, job.rows, chunk);
  if (all.empty()) {
    return;
  }
  const std::size_t queries = std::size_t{job.rows} * job.group;
  if (has_scales(job.code) && queries <= Isa::kQueries) {
    bool in_registers = false;
    if constexpr (Isa::kAttendsInRegisters) {
      in_registers = fits_registers(job);
      if (in_registers) {
        chunk_in_registers<Isa>(job, scratch, chunk, all, partials(0));
      }
    }
    if (!in_registers) {
      chunk_in_strips<Isa>(job, scratch, chunk, all, partials(0));
    }
    done(0, queries);
    return;
  }
  stage<Isa>(job, chunk, all.low, all.high, scratch.staged);
  for_query_tiles<Isa>(job, [&](std::size_t first, std::size_t count) {
    chunk_tile<Isa>(job, scratch, chunk, first, count, partials(first));
    done(first, count);
  });
}

// All chunks that a job's rows see, ascending, into finished rows. one_chunk(chunk, done) calls
// done(first query, how many) when those have their partials in scratch.partials.
template <class Isa, class OneChunk>
void attend_chunks(const AttentionJob& job,
                   const AttentionScratch& scratch,
                   const OneChunk& one_chunk) {
  const std::size_t stride = partial_floats(job.head_dim);
  const std::size_t queries = std::size_t{job.rows} * job.group;
  for (std::size_t i = 0; i < queries; ++i) {
    start_running(job, scratch.running + i * stride);
  }
  const std::size_t last = job.first_position + job.rows - 1;
  const std::size_t first = first_seen(job.first_position, job.window);
  for (std::size_t chunk = first / kAttentionChunk; chunk <= last / kAttentionChunk; ++chunk) {
    one_chunk(chunk, [&](std::size_t at, std::size_t count) {
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
void attend_rows(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  prepare_queries<Isa>(job, scratch);
  attend_chunks<Isa>(job, scratch, [&](std::size_t chunk, const auto& done) {
    over_chunk<Isa>(
        job, scratch, chunk, [&](std::size_t) { return scratch.partials; }, done);
  });
}

template <class Isa>
void attend_chunk(const AttentionJob& job) {
  const AttentionScratch scratch = cut_scratch(job);
  const std::size_t stride = partial_floats(job.head_dim);
  prepare_queries<Isa>(job, scratch);
  over_chunk<Isa>(
      job,
      scratch,
      job.first_chunk,
      [&](std::size_t first) { return job.partials + first * stride; },
      [](std::size_t, std::size_t) {});
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
