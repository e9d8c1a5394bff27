// 16 float lanes in two 256-bit registers; int8 dot products by maddubs, which cannot saturate
// here. Needs AVX2, FMA and F16C. Only kernels_avx2.cpp includes this.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace baton::kernels::cpu {
namespace {

#define BATON_OP [[gnu::always_inline]] static inline

struct Avx2 {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  using W = I;
  using M = I;
  using H = __m256i;  // 16 halves' bits
  static constexpr const char* kName = "avx2";
  static constexpr int kQuantRows = 4;
  static constexpr int kFloatRows = 6;
  static constexpr int kGroups = 1;
  static constexpr int kQueries = 6;
  static constexpr int kGranules = 1;
  // 8-bit codes are turned to signed ones: |w| * ±a fits maddubs' 16 bits, 255 * 127 * 2 does not.
  static constexpr bool kSignedBytes = true;
  // Codes of up to six bits: products of several steps are summed in 16 bits before they are
  // widened.
  static constexpr bool kNarrowSums = true;
  static constexpr bool kAttendsInRegisters = true;  // a few queries over stored codes
  static constexpr int kFewSums = 6;     // vectors of sums that such a loop keeps in registers
  static constexpr int kLoosePairs = 1;  // vectors that loose_*_pairs make at a time

  BATON_OP F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  BATON_OP F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  BATON_OP F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  BATON_OP F load_n(const float* p, std::size_t n) {
    if (n == 16) {
      return load(p);
    }
    float lanes[16] = {};
    for (std::size_t i = 0; i < n; ++i) {
      lanes[i] = p[i];
    }
    return load(lanes);
  }
  BATON_OP void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  BATON_OP void store_n(float* p, F x, std::size_t n) {
    if (n == 16) {
      return store(p, x);
    }
    float lanes[16];
    store(lanes, x);
    for (std::size_t i = 0; i < n; ++i) {
      p[i] = lanes[i];
    }
  }
  BATON_OP F load(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
  }
  BATON_OP F load_n(const std::uint16_t* p, std::size_t n) {
    if (n == 16) {
      return load(p);
    }
    std::uint16_t lanes[16] = {};
    for (std::size_t i = 0; i < n; ++i) {
      lanes[i] = p[i];
    }
    return load(lanes);
  }
  BATON_OP F load_bfloat(const std::uint16_t* p) {
    const auto widen = [](__m128i raw) __attribute__((always_inline)) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
    };
    return {widen(load128(p)), widen(load128(p + 8))};
  }
  BATON_OP void store_half(std::uint16_t* p, F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, kNearest));
  }
  BATON_OP F load_u8(const std::uint8_t* p) {
    const __m128i raw = load128(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(raw)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(raw, 8)))};
  }
  BATON_OP F load_s8(const std::uint8_t* p) {
    const __m128i raw = load128(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(raw)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(raw, 8)))};
  }
  BATON_OP F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  BATON_OP F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  BATON_OP F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  BATON_OP F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  BATON_OP F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  BATON_OP F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  BATON_OP F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  BATON_OP F neg(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
  }
  BATON_OP F add_exponent(F x, I n) {
    const auto one = [](__m256 v, __m256i e) __attribute__((always_inline)) {
      return _mm256_castsi256_ps(
          _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(e, 23)));
    };
    return {one(x.a, n.a), one(x.b, n.b)};
  }
  BATON_OP I bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }

  BATON_OP I iset1(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  template <int kShift>
  BATON_OP I shift_left(I x) {
    return {_mm256_slli_epi32(x.a, kShift), _mm256_slli_epi32(x.b, kShift)};
  }
  BATON_OP F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

  BATON_OP M range(std::size_t low, std::size_t high) {
    const __m256i below = _mm256_set1_epi32(static_cast<int>(low) - 1);
    const __m256i above = _mm256_set1_epi32(static_cast<int>(high));
    const auto inside = [&](__m256i lane) __attribute__((always_inline)) {
      return _mm256_and_si256(_mm256_cmpgt_epi32(lane, below), _mm256_cmpgt_epi32(above, lane));
    };
    return {inside(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            inside(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
  BATON_OP F select(M mask, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(mask.a)),
            _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(mask.b))};
  }

  BATON_OP W load_codes(const std::uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  BATON_OP void store_codes(std::uint8_t* p, W w) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), w.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), w.b);
  }
  BATON_OP W low_nibbles(W w) {
    const __m256i mask = _mm256_set1_epi8(0x0F);
    return {_mm256_and_si256(w.a, mask), _mm256_and_si256(w.b, mask)};
  }
  BATON_OP W high_nibbles(W w) {
    return low_nibbles({_mm256_srli_epi32(w.a, 4), _mm256_srli_epi32(w.b, 4)});
  }
  BATON_OP W with_fifth_bits(W w, const std::uint8_t* packed) {
    const auto expand = [](const std::uint8_t* four) __attribute__((always_inline)) {
      std::int32_t word;
      __builtin_memcpy(&word, four, sizeof(word));
      // Byte i looks at bit i % 8 of packed byte i / 8.
      const __m256i spread = _mm256_shuffle_epi8(
          _mm256_set1_epi32(word),
          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
      const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
      return _mm256_and_si256(set, _mm256_set1_epi8(0x10));
    };
    return {_mm256_or_si256(w.a, expand(packed)), _mm256_or_si256(w.b, expand(packed + 4))};
  }
  template <int kPart>
  BATON_OP W with_top_bits(W w, W packed) {
    const auto one = [](__m256i code, __m256i top) __attribute__((always_inline)) {
      const __m256i moved = kPart < 2 ? _mm256_slli_epi32(top, kPart == 0 ? 4 : 2)
                                      : (kPart == 2 ? top : _mm256_srli_epi32(top, 2));
      return _mm256_or_si256(code, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
    };
    return {one(w.a, packed.a), one(w.b, packed.b)};
  }
  // 16-bit sums, two a feature: one more step of four products; begins anew if `kFirst`.
  template <bool kFirst>
  BATON_OP I narrow_dot(I sums, W w, std::uint32_t a) {
    const __m256i activation = _mm256_set1_epi32(static_cast<std::int32_t>(a));
    const auto one = [&](__m256i sum, __m256i code) __attribute__((always_inline)) {
      const __m256i pairs = _mm256_maddubs_epi16(code, activation);
      return in_turn(kFirst ? pairs : _mm256_add_epi16(sum, pairs));
    };
    return {one(sums.a, w.a), one(sums.b, w.b)};
  }
  BATON_OP I join_narrow(I dots, I sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(dots.a, _mm256_madd_epi16(sums.a, ones)),
            _mm256_add_epi32(dots.b, _mm256_madd_epi16(sums.b, ones))};
  }
  // Signed 16-bit codes, two a feature.
  template <bool kFirst>
  BATON_OP I dot2(I sums, W w, std::uint32_t a) {
    const __m256i activation = _mm256_set1_epi32(static_cast<std::int32_t>(a));
    const auto one = [&](__m256i sum, __m256i code) __attribute__((always_inline)) {
      const __m256i pairs = _mm256_madd_epi16(code, activation);
      return in_turn(kFirst ? pairs : _mm256_add_epi32(sum, pairs));
    };
    return {one(sums.a, w.a), one(sums.b, w.b)};
  }
  // Four unsigned codes a feature as signed ones: the first two, then, 64 bytes on, the others.
  BATON_OP void widen_codes(W w, std::uint8_t* out) {
    const auto half = [&](__m256i code, int at) __attribute__((always_inline)) {
      // Byte b of a lane to the upper byte of word b.
      const __m256i places = _mm256_add_epi8(_mm256_setr_epi8(-128,
                                                              0,
                                                              -128,
                                                              1,
                                                              -128,
                                                              4,
                                                              -128,
                                                              5,
                                                              -128,
                                                              8,
                                                              -128,
                                                              9,
                                                              -128,
                                                              12,
                                                              -128,
                                                              13,
                                                              -128,
                                                              0,
                                                              -128,
                                                              1,
                                                              -128,
                                                              4,
                                                              -128,
                                                              5,
                                                              -128,
                                                              8,
                                                              -128,
                                                              9,
                                                              -128,
                                                              12,
                                                              -128,
                                                              13),
                                             _mm256_set1_epi16(static_cast<short>(at << 8)));
      const __m256i sign = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
      return _mm256_srai_epi16(_mm256_shuffle_epi8(sign, places), 8);
    };
    store_codes(out, {half(w.a, 0), half(w.b, 0)});
    store_codes(out + 64, {half(w.a, 2), half(w.b, 2)});
  }
  BATON_OP std::uint64_t widen_activation(std::uint32_t four) {
    return static_cast<std::uint64_t>(
        _mm_cvtsi128_si64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(static_cast<std::int32_t>(four)))));
  }
  template <bool kWide>
  BATON_OP I dot4(I acc, W w, std::uint32_t a) {
    const __m256i activation = _mm256_set1_epi32(static_cast<std::int32_t>(a));
    const __m256i ones = _mm256_set1_epi16(1);
    const auto one = [&](__m256i sum, __m256i code) __attribute__((always_inline)) {
      __m256i pairs;
      if constexpr (kWide) {
        const __m256i sign = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
        pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(sign), _mm256_sign_epi8(activation, sign));
      } else {
        pairs = _mm256_maddubs_epi16(code, activation);
      }
      return in_turn(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones)));
    };
    return {one(acc.a, w.a), one(acc.b, w.b)};
  }

  BATON_OP std::uint32_t largest_magnitude(const float* x) {
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      const __m256i raw = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
      top = _mm256_max_epu32(top, _mm256_and_si256(raw, mask));
    }
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
  }
  BATON_OP void quantise32(const float* x, float factor, std::int8_t* codes) {
    const __m256 f = _mm256_set1_ps(factor);
    const auto convert = [&](int i) __attribute__((always_inline)) {
      return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), f));
    };
    const __m256i low = _mm256_packs_epi32(convert(0), convert(1));
    const __m256i high = _mm256_packs_epi32(convert(2), convert(3));
    // Packing works within halves; the groups of four come out as 0 2 4 6 1 3 5 7.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
  }
  BATON_OP std::int32_t sum16(const std::int8_t* codes) {
    const __m128i biased = _mm_xor_si128(load128(codes), _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }

  // Pairs of 16-bit codes, the even one in a lane's low half.
  BATON_OP I iload(const std::int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
  }
  BATON_OP void istore(std::int32_t* p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
  }
  BATON_OP I dot2(I acc, I x, std::int32_t pair) {
    const __m256i y = _mm256_set1_epi32(pair);
    // Written out so that a sum stays in its register: GCC copies it, and runs out of them.
    __asm__("vpaddd %1, %0, %0" : "+x"(acc.a) : "x"(_mm256_madd_epi16(x.a, y)));
    __asm__("vpaddd %1, %0, %0" : "+x"(acc.b) : "x"(_mm256_madd_epi16(x.b, y)));
    return acc;
  }
  BATON_OP I pack_pairs(F low, F high) {
    const auto one = [](__m256 even, __m256 odd) __attribute__((always_inline)) {
      return _mm256_blend_epi16(
          _mm256_cvtps_epi32(even), _mm256_slli_epi32(_mm256_cvtps_epi32(odd), 16), 0xAA);
    };
    return {one(low.a, high.a), one(low.b, high.b)};
  }
  BATON_OP I byte_pairs(const std::uint8_t* low, const std::uint8_t* high) {
    const __m128i even = load128(low);
    const __m128i odd = load128(high);
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(even, odd)),
            _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(even, odd))};
  }
  // Lanes 0-3, 8-11, then 4-7, 12-15.
  BATON_OP void loose_short_pairs(const std::int16_t* low, const std::int16_t* high, I* out) {
    const __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
    const __m256i odd = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high));
    *out = {_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd)};
  }
  BATON_OP void tidy_short_pairs(I* x) {
    *x = {_mm256_permute2x128_si256(x->a, x->b, 0x20), _mm256_permute2x128_si256(x->a, x->b, 0x31)};
  }
  BATON_OP I short_pairs(const std::int16_t* low, const std::int16_t* high) {
    I pairs;
    loose_short_pairs(low, high, &pairs);
    tidy_short_pairs(&pairs);
    return pairs;
  }
  BATON_OP void loose_byte_pairs(const std::uint8_t* low, const std::uint8_t* high, I* out) {
    *out = byte_pairs(low, high);
  }
  BATON_OP void tidy_byte_pairs(I*) {}
  BATON_OP void store_short(std::int16_t* p, F x) {
    const __m256i mixed = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xD8));
  }
  BATON_OP F load_e4m3(const std::uint8_t* p) {
    const __m256i wide = _mm256_cvtepu8_epi16(load128(p));
    const __m256i number = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7F)), 7);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    return to_float(_mm256_or_si256(number, sign));
  }
  BATON_OP F to_float(H halves) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  BATON_OP F as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
  BATON_OP I magnitudes(I top, F x) {
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    return {_mm256_max_epu32(top.a, _mm256_and_si256(_mm256_castps_si256(x.a), mask)),
            _mm256_max_epu32(top.b, _mm256_and_si256(_mm256_castps_si256(x.b), mask))};
  }
  BATON_OP H hzero() { return _mm256_setzero_si256(); }
  BATON_OP H magnitudes(H top, const std::uint16_t* p) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_max_epu16(top, _mm256_and_si256(raw, _mm256_set1_epi16(0x7FFF)));
  }
  BATON_OP std::uint32_t largest_lane(I x) {
    const __m256i top = _mm256_max_epu32(x.a, x.b);
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
  }
  BATON_OP std::uint16_t largest_lane(H x) {
    const __m128i top = _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(top, _mm_set1_epi16(-1)));
    return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(least));
  }

  BATON_OP void split_pairs(F x, F y, F& a, F& b) {
    const auto even = [](__m256 p, __m256 q) __attribute__((always_inline)) {
      return in_order(_mm256_shuffle_ps(p, q, 0x88));
    };
    const auto odd = [](__m256 p, __m256 q) __attribute__((always_inline)) {
      return in_order(_mm256_shuffle_ps(p, q, 0xDD));
    };
    a = {even(x.a, x.b), even(y.a, y.b)};
    b = {odd(x.a, x.b), odd(y.a, y.b)};
  }
  BATON_OP void join_pairs(F a, F b, F& x, F& y) {
    const auto join = [](__m256 p, __m256 q, F & out) __attribute__((always_inline)) {
      const __m256 low = _mm256_unpacklo_ps(p, q);
      const __m256 high = _mm256_unpackhi_ps(p, q);
      out = {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
    };
    join(a.a, b.a, x);
    join(a.b, b.b, y);
  }
  BATON_OP float sum_tree(F x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  BATON_OP float largest(F x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  BATON_OP void prefetch(const void* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  BATON_OP void prefetch_far(const void* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }

 private:
  BATON_OP __m128i load128(const void* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  // The compiler would make all products first and add them as a tree, which takes more registers
  // than there are.
  BATON_OP __m256i in_turn(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
  }
  BATON_OP __m256 in_order(__m256 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
