// From a chunk's scores to its weights: what a query sees, exponentials, sums, codes.
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
  const std::size_t first = first_seen(position, job.window);
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

}  // namespace
}  // namespace baton::kernels::cpu
