// Keys and values of one chunk as attention multiplies them: 16-bit codes in pairs, one scale for
// each token. Whatever the arena's element type, a token's codes depend on that token alone:
//   f32, f16  the largest magnitude becomes 4095
//   i16, i8   the stored codes
//   f8        the stored numbers in steps of 1/8 (the largest, 448, becomes 3584)
// Codes and the magnitudes they are multiplied with are bounded so that no sum leaves 32 bits
// (`code_sum_limit`). A token that holds what is no number has codes 0 and a scale that is none.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kv_granule.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kChunkPairs = kAttentionChunk / 2;

// A chunk's codes and scales, in a thread's scratch.
struct Staged {
  std::int32_t* keys;    // [16 positions][pair of dimensions][16]: (dim, dim + 1) of a position
  std::int32_t* values;  // [16 dimensions][pair of positions][16]: (t, t + 1) of a dimension
  float* key_scales;     // [kAttentionChunk]
  float* value_scales;
};

constexpr float largest_code(KvCode code) {
  switch (code) {
    case KvCode::F32:
    case KvCode::F16:
    case KvCode::I16:
      return 4095.0F;
    case KvCode::I8:
      return 127.0F;
    case KvCode::F8:
      return 3584.0F;
  }
  return 0.0F;
}

// What the magnitudes of up to 1024 codes may add up to before they are rounded, so that their
// product with codes of `largest_code` stays below 2^31. 2 % is kept for rounding.
constexpr float code_sum_limit(KvCode code) {
  return 2147483648.0F * 0.98F / largest_code(code) - 512.0F;
}

// 2^-100 keeps factors finite where everything is zero.
constexpr float kLeastMagnitude = 0x1p-100F;

// Magnitudes to factors (codes = x * factor) and scales. A NaN stays one: x86's max gives its
// second operand then.
template <class Isa, KvCode kCode>
[[gnu::always_inline]] inline typename Isa::F factor_of(typename Isa::F magnitude,
                                                        typename Isa::F& scale) {
  const typename Isa::F most = Isa::set1(largest_code(kCode));
  const typename Isa::F bounded = Isa::max(Isa::set1(kLeastMagnitude), magnitude);
  scale = Isa::div(bounded, most);
  return Isa::div(most, bounded);
}

template <class Isa, KvCode kCode>
struct KvElement;

template <class Isa>
struct KvElement<Isa, KvCode::F32> {
  using T = float;
  using Top = typename Isa::I;
  [[gnu::always_inline]] static Top no_top() { return Isa::iset1(0); }
  [[gnu::always_inline]] static Top raise(Top top, const T* p) {
    return Isa::magnitudes(top, Isa::load(p));
  }
  [[gnu::always_inline]] static typename Isa::F lanes(Top top) { return Isa::as_float(top); }
  [[gnu::always_inline]] static float largest(Top top) {
    return __builtin_bit_cast(float, Isa::largest_lane(top));
  }
  [[gnu::always_inline]] static typename Isa::F load(const T* p) { return Isa::load(p); }
};

template <class Isa>
struct KvElement<Isa, KvCode::F16> {
  using T = std::uint16_t;
  using Top = typename Isa::H;
  [[gnu::always_inline]] static Top no_top() { return Isa::hzero(); }
  [[gnu::always_inline]] static Top raise(Top top, const T* p) { return Isa::magnitudes(top, p); }
  [[gnu::always_inline]] static typename Isa::F lanes(Top top) { return Isa::to_float(top); }
  [[gnu::always_inline]] static float largest(Top top) {
    return half_to_float(Isa::largest_lane(top));
  }
  [[gnu::always_inline]] static typename Isa::F load(const T* p) { return Isa::load(p); }
};

template <class Isa>
struct KvElement<Isa, KvCode::I8> {
  using T = std::uint8_t;
  [[gnu::always_inline]] static typename Isa::I pairs(const T* low, const T* high) {
    return Isa::byte_pairs(low, high);
  }
  // Isa::kLoosePairs vectors of pairs in an order that is cheap to make, and sums of their products
  // put in order.
  [[gnu::always_inline]] static void loose(const T* low, const T* high, typename Isa::I* out) {
    Isa::loose_byte_pairs(low, high, out);
  }
  [[gnu::always_inline]] static void tidy(typename Isa::I* sums) { Isa::tidy_byte_pairs(sums); }
};

template <class Isa>
struct KvElement<Isa, KvCode::I16> {
  using T = std::int16_t;
  [[gnu::always_inline]] static typename Isa::I pairs(const T* low, const T* high) {
    return Isa::short_pairs(low, high);
  }
  [[gnu::always_inline]] static void loose(const T* low, const T* high, typename Isa::I* out) {
    Isa::loose_short_pairs(low, high, out);
  }
  [[gnu::always_inline]] static void tidy(typename Isa::I* sums) { Isa::tidy_short_pairs(sums); }
};

template <class Isa>
struct KvElement<Isa, KvCode::F8> {
  using T = std::uint8_t;
  [[gnu::always_inline]] static typename Isa::F load(const T* p) { return Isa::load_e4m3(p); }
};
constexpr float kE4m3Step = 2048.0F;  // load_e4m3 divides by 256; codes are eighths

// Stored codes are multiplied as they are.
constexpr bool is_whole(KvCode code) {
  return code == KvCode::I8 || code == KvCode::I16;
}
constexpr bool has_scales(KvCode code) {
  return is_whole(code) || code == KvCode::F8;
}

// 16 tokens' stored scales, for the codes that are multiplied.
template <class Isa, KvCode kCode>
[[gnu::always_inline]] inline typename Isa::F stored_scale(const float* scales) {
  const typename Isa::F scale = Isa::load(scales);
  return kCode == KvCode::F8 ? Isa::mul(scale, Isa::set1(0.125F)) : scale;
}

// What follows in the last, partly filled vector of a row is zero.
template <class T>
[[gnu::always_inline]] inline const T* padded(const T* p, std::size_t n, T (&copy)[kLanes]) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    copy[i] = i < n ? p[i] : T{};
  }
  return copy;
}

// 16 positions' keys. out: [pair][16]
template <class Isa, KvCode kCode>
void stage_keys(const Granule<typename KvElement<Isa, kCode>::T>& from,
                std::size_t tokens,
                std::size_t head_dim,
                const std::byte* ahead,
                std::int32_t* out,
                float* scales) {
  using Element = KvElement<Isa, kCode>;
  using T = typename Element::T;
  using F = typename Isa::F;
  [[maybe_unused]] F factor = Isa::set1(kE4m3Step);
  if constexpr (has_scales(kCode)) {
    Isa::store(scales, stored_scale<Isa, kCode>(from.key_scales));
  } else {
    typename Element::Top top = Element::no_top();
    const T* keys = from.keys;
    for (std::size_t d = 0; d < head_dim; ++d, keys += tokens) {
      top = Element::raise(top, keys);
    }
    F scale;
    factor = factor_of<Isa, kCode>(Element::lanes(top), scale);
    Isa::store(scales, scale);
  }
  const T* keys = from.keys;
  const T zeros[kLanes] = {};
  for (std::size_t d = 0; d < head_dim; d += 2, keys += 2 * tokens, out += kLanes) {
    ahead = fetch_two_rows<Isa, T>(ahead);
    const T* odd = d + 1 < head_dim ? keys + tokens : zeros;
    if constexpr (is_whole(kCode)) {
      Isa::istore(out, Element::pairs(keys, odd));
    } else {
      Isa::istore(out,
                  Isa::pack_pairs(Isa::mul(Element::load(keys), factor),
                                  Isa::mul(Element::load(odd), factor)));
    }
  }
}

// 16 positions' values. out: eight pairs of each 16 dimensions, `step` from those to the next.
template <class Isa, KvCode kCode>
void stage_values(const Granule<typename KvElement<Isa, kCode>::T>& from,
                  std::size_t head_dim,
                  const std::byte* ahead,
                  std::int32_t* out,
                  std::size_t step,
                  float* scales) {
  using Element = KvElement<Isa, kCode>;
  using T = typename Element::T;
  using F = typename Isa::F;
  T copies[2][kLanes];
  float factors[kLanes];
  if constexpr (has_scales(kCode)) {
    Isa::store(scales, stored_scale<Isa, kCode>(from.value_scales));
  } else {
    float tops[kLanes];
    const T* values = from.values;
    for (std::size_t t = 0; t < kLanes; ++t, values += head_dim) {
      typename Element::Top top = Element::no_top();
      std::size_t d = 0;
      for (; d + kLanes <= head_dim; d += kLanes) {
        top = Element::raise(top, values + d);
      }
      if (d < head_dim) {
        top = Element::raise(top, padded(values + d, head_dim - d, copies[0]));
      }
      tops[t] = Element::largest(top);
    }
    F scale;
    Isa::store(factors, factor_of<Isa, kCode>(Isa::load(tops), scale));
    Isa::store(scales, scale);
  }
  const T* even = from.values;
  for (std::size_t t = 0; t < kLanes; t += 2, even += 2 * head_dim) {
    const T* odd = even + head_dim;
    [[maybe_unused]] F even_factor = Isa::set1(kE4m3Step);
    [[maybe_unused]] F odd_factor = even_factor;
    if constexpr (!has_scales(kCode)) {
      even_factor = Isa::set1(factors[t]);
      odd_factor = Isa::set1(factors[t + 1]);
    }
    std::int32_t* to = out + t / 2 * kLanes;
    for (std::size_t d = 0; d < head_dim; d += kLanes, to += step) {
      ahead = fetch_two_rows<Isa, T>(ahead);
      const T* a = even + d;
      const T* b = odd + d;
      if (head_dim - d < kLanes) {
        a = padded(a, head_dim - d, copies[0]);
        b = padded(b, head_dim - d, copies[1]);
      }
      if constexpr (is_whole(kCode)) {
        Isa::istore(to, Element::pairs(a, b));
      } else {
        Isa::istore(to,
                    Isa::pack_pairs(Isa::mul(Element::load(a), even_factor),
                                    Isa::mul(Element::load(b), odd_factor)));
      }
    }
  }
}

// Positions [first, end) of a chunk, both multiples of 16, to their places in a whole chunk.
template <class Isa, KvCode kCode>
void stage_of(const AttentionJob& job,
              std::size_t chunk,
              std::size_t first,
              std::size_t end,
              const Staged& out) {
  using T = typename KvElement<Isa, kCode>::T;
  constexpr bool kScales = has_scales(kCode);
  const std::size_t pairs = dim_pairs(job.head_dim);
  const std::size_t base = chunk * kAttentionChunk;
  for (std::size_t at = first; at < end; at += kLanes) {
    const Granule<T> from = granule<T, kScales>(job, base + at);
    const std::size_t later = base + at + job.block_tokens;
    const std::size_t next = later < job.end_position ? later : base + at;
    stage_keys<Isa, kCode>(from,
                           job.block_tokens,
                           job.head_dim,
                           share<T, kScales>(job, Half::Keys, next),
                           out.keys + at * pairs,
                           out.key_scales + at);
    stage_values<Isa, kCode>(from,
                             job.head_dim,
                             share<T, kScales>(job, Half::Values, next),
                             out.values + at / 2 * kLanes,
                             kChunkPairs * kLanes,
                             out.value_scales + at);
  }
}

// Few queries take a chunk in strips that stay in the first-level cache: keys, then values.
[[maybe_unused]] static inline std::size_t strip_positions(std::size_t head_dim) {
  return head_dim <= 128 ? 64 : 32;
}
struct Strip {
  std::size_t low;  // the range that all strips make up
  std::size_t high;
  std::size_t first;
  std::size_t end;
};

// One strip's keys or values, to the beginning of their place; scales to their places in the chunk.
template <class Isa, KvCode kCode>
void stage_strip_of(
    const AttentionJob& job, std::size_t chunk, Half half, const Strip& strip, const Staged& out) {
  using T = typename KvElement<Isa, kCode>::T;
  constexpr bool kScales = has_scales(kCode);
  const std::size_t base = chunk * kAttentionChunk;
  const std::size_t step = strip_positions(job.head_dim) / 2 * kLanes;
  for (std::size_t at = strip.first; at < strip.end; at += kLanes) {
    const Granule<T> from = granule<T, kScales>(job, base + at);
    const Later later =
        what_follows(job, half, base, strip.low, strip.high, at, positions_ahead<T>(job));
    const std::byte* ahead = share<T, kScales>(*later.job, later.half, later.position);
    fetch_scales<Isa, T>(later, 1);
    if (half == Half::Keys) {
      stage_keys<Isa, kCode>(from,
                             job.block_tokens,
                             job.head_dim,
                             ahead,
                             out.keys + (at - strip.first) * dim_pairs(job.head_dim),
                             out.key_scales + at);
    } else {
      stage_values<Isa, kCode>(from,
                               job.head_dim,
                               ahead,
                               out.values + (at - strip.first) / 2 * kLanes,
                               step,
                               out.value_scales + at);
    }
  }
}

// The scales of values that store them.
template <class Isa, KvCode kCode>
void load_value_scales_of(
    const AttentionJob& job, std::size_t chunk, std::size_t first, std::size_t end, float* out) {
  for (std::size_t at = first; at < end; at += kLanes) {
    const auto from =
        granule<typename KvElement<Isa, kCode>::T, true>(job, chunk * kAttentionChunk + at);
    Isa::store(out + at, stored_scale<Isa, kCode>(from.value_scales));
  }
}

// body(code as a constant)
template <KvCode kCode>
struct CodeTag {
  static constexpr KvCode kValue = kCode;
};
template <class Body>
[[gnu::always_inline]] inline void with_code(KvCode code, const Body& body) {
  switch (code) {
    case KvCode::F32:
      return body(CodeTag<KvCode::F32>{});
    case KvCode::F16:
      return body(CodeTag<KvCode::F16>{});
    case KvCode::I8:
      return body(CodeTag<KvCode::I8>{});
    case KvCode::F8:
      return body(CodeTag<KvCode::F8>{});
    case KvCode::I16:
      return body(CodeTag<KvCode::I16>{});
  }
}

template <class Isa>
void stage(const AttentionJob& job,
           std::size_t chunk,
           std::size_t first,
           std::size_t end,
           const Staged& out) {
  with_code(job.code,
            [&](auto code) { stage_of<Isa, decltype(code)::kValue>(job, chunk, first, end, out); });
}

// Strips are for types that store their scales.
template <class Isa>
void stage_strip(
    const AttentionJob& job, std::size_t chunk, Half half, const Strip& strip, const Staged& out) {
  with_code(job.code, [&](auto code) {
    if constexpr (has_scales(decltype(code)::kValue)) {
      stage_strip_of<Isa, decltype(code)::kValue>(job, chunk, half, strip, out);
    }
  });
}
template <class Isa>
void load_value_scales(
    const AttentionJob& job, std::size_t chunk, std::size_t first, std::size_t end, float* out) {
  with_code(job.code, [&](auto code) {
    if constexpr (has_scales(decltype(code)::kValue)) {
      load_value_scales_of<Isa, decltype(code)::kValue>(job, chunk, first, end, out);
    }
  });
}

}  // namespace
}  // namespace baton::kernels::cpu
