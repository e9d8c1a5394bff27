// 16 float lanes in one 512-bit register; int8 dot products by VNNI.
// Only kernels_avx512.cpp includes this.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace baton::kernels::cpu {
namespace {

#ifndef BATON_OP  // a test that emulates the instructions compiles them out of line
#define BATON_OP [[gnu::always_inline]] static inline
#endif

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using W = __m512i;  // 16 lanes of four weight codes
  using M = __mmask16;
  using H = __m256i;  // 16 halves' bits
  static constexpr const char* kName = "avx512-vnni";
  static constexpr int kQuantRows = 6;
  static constexpr int kFloatRows = 12;
  static constexpr int kGroups = 2;  // vectors of output features a tile holds
  static constexpr int kQueries = 12;
  static constexpr int kGranules = 2;  // vectors of positions or dimensions an attention tile holds
  static constexpr bool kSignedBytes = false;  // 8-bit codes are used unsigned
  static constexpr bool kNarrowSums = false;
  static constexpr bool kAttendsInRegisters = true;  // a few queries over stored codes
  static constexpr int kFewSums = 24;    // vectors of sums that such a loop keeps in registers
  static constexpr int kLoosePairs = 2;  // vectors that loose_*_pairs make at a time

  BATON_OP F zero() { return _mm512_setzero_ps(); }
  BATON_OP F set1(float x) { return _mm512_set1_ps(x); }
  BATON_OP F load(const float* p) { return _mm512_loadu_ps(p); }
  BATON_OP F load_n(const float* p, std::size_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  BATON_OP void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  BATON_OP void store_n(float* p, F x, std::size_t n) { _mm512_mask_storeu_ps(p, first(n), x); }
  BATON_OP F load(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  BATON_OP F load_n(const std::uint16_t* p, std::size_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
  }
  BATON_OP F load_bfloat(const std::uint16_t* p) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
  }
  BATON_OP void store_half(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  BATON_OP F load_u8(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  BATON_OP F load_s8(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  BATON_OP F add(F a, F b) { return _mm512_add_ps(a, b); }
  BATON_OP F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  BATON_OP F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  BATON_OP F div(F a, F b) { return _mm512_div_ps(a, b); }
  BATON_OP F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  BATON_OP F max(F a, F b) { return _mm512_max_ps(a, b); }
  BATON_OP F min(F a, F b) { return _mm512_min_ps(a, b); }
  BATON_OP F neg(F a) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
  }
  // The bits of x as integers, plus (n << 23): multiplies by 2^n.
  BATON_OP F add_exponent(F x, I n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(n, 23)));
  }
  BATON_OP I bits(F x) { return _mm512_castps_si512(x); }

  BATON_OP I iset1(std::int32_t x) { return _mm512_set1_epi32(x); }
  template <int kShift>
  BATON_OP I shift_left(I x) {
    return _mm512_slli_epi32(x, kShift);
  }
  BATON_OP F to_float(I x) { return _mm512_cvtepi32_ps(x); }

  BATON_OP M range(std::size_t low, std::size_t high) {
    return static_cast<M>(first(high) & ~first(low));
  }
  BATON_OP F select(M mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no, yes); }

  BATON_OP W load_codes(const std::uint8_t* p) {
    return _mm512_loadu_si512(reinterpret_cast<const void*>(p));
  }
  BATON_OP void store_codes(std::uint8_t* p, W w) {
    _mm512_storeu_si512(reinterpret_cast<void*>(p), w);
  }
  BATON_OP W low_nibbles(W w) { return _mm512_and_si512(w, _mm512_set1_epi8(0x0F)); }
  BATON_OP W high_nibbles(W w) {
    return _mm512_and_si512(_mm512_srli_epi32(w, 4), _mm512_set1_epi8(0x0F));
  }
  // Bit i of the eight bytes becomes bit 4 of code i.
  BATON_OP W with_fifth_bits(W w, const std::uint8_t* packed) {
    std::uint64_t mask;
    __builtin_memcpy(&mask, packed, sizeof(mask));
    return _mm512_mask_add_epi8(w, mask, w, _mm512_set1_epi8(0x10));
  }
  // Bits 2j and 2j + 1 of a byte become bits 4 and 5 of the code.
  template <int kPart>
  BATON_OP W with_top_bits(W w, W packed) {
    const W moved = kPart < 2 ? _mm512_slli_epi32(packed, kPart == 0 ? 4 : 2)
                              : (kPart == 2 ? packed : _mm512_srli_epi32(packed, 2));
    return _mm512_ternarylogic_epi32(w, moved, _mm512_set1_epi8(0x30), 0xF8);  // w | (moved & 0x30)
  }
  // acc + the four products of each lane; w unsigned (8 bits when kWide), a signed in [-127, 127].
  template <bool kWide>
  BATON_OP I dot4(I acc, W w, std::uint32_t a) {
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(static_cast<std::int32_t>(a)));
  }

  // Largest magnitude of 32 floats as bits; 32 floats times `factor`, rounded to int8.
  BATON_OP std::uint32_t largest_magnitude(const float* x) {
    const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512i a = _mm512_and_si512(_mm512_castps_si512(load(x)), mask);
    const __m512i b = _mm512_and_si512(_mm512_castps_si512(load(x + 16)), mask);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
  }
  BATON_OP void quantise32(const float* x, float factor, std::int8_t* codes) {
    const F f = set1(factor);
    const auto convert = [&](const float* p) __attribute__((always_inline)) {
      return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(load(p), f)));
    };
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), convert(x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), convert(x + 16));
  }
  // Sum of 16 int8.
  BATON_OP std::int32_t sum16(const std::int8_t* codes) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i biased = _mm_xor_si128(raw, _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(biased, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }

  // Pairs of 16-bit codes, the even one in a lane's low half.
  BATON_OP I iload(const std::int32_t* p) {
    return _mm512_loadu_si512(reinterpret_cast<const void*>(p));
  }
  BATON_OP void istore(std::int32_t* p, I x) { _mm512_storeu_si512(reinterpret_cast<void*>(p), x); }
  // acc + x.low * pair.low + x.high * pair.high
  BATON_OP I dot2(I acc, I x, std::int32_t pair) {
    const __m512i y = _mm512_set1_epi32(pair);
#ifdef __AVX512VNNI__
    // Written out so that a sum stays in its register: GCC copies it, and runs out of them.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
#else  // emulated
    return _mm512_dpwssd_epi32(acc, x, y);
#endif
  }
  // Rounded to nearest; what is no number becomes 0.
  BATON_OP I pack_pairs(F low, F high) {
    return _mm512_mask_blend_epi16(
        0xAAAAAAAA, _mm512_cvtps_epi32(low), _mm512_slli_epi32(_mm512_cvtps_epi32(high), 16));
  }
  // Signed bytes.
  BATON_OP I byte_pairs(const std::uint8_t* low, const std::uint8_t* high) {
    const __m128i even = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    const __m128i odd = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
    return _mm512_cvtepi8_epi16(
        _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd)));
  }
  BATON_OP I short_pairs(const std::int16_t* low, const std::int16_t* high) {
    const auto wide = [](const std::int16_t* p) __attribute__((always_inline)) {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    };
    return _mm512_mask_blend_epi16(0xAAAAAAAA, wide(low), _mm512_slli_epi32(wide(high), 16));
  }
  // 32 pairs in an order that is cheap to make, and sums of their products put in order.
  BATON_OP void loose_short_pairs(const std::int16_t* low, const std::int16_t* high, I* out) {
    const I even = _mm512_loadu_si512(reinterpret_cast<const void*>(low));
    const I odd = _mm512_loadu_si512(reinterpret_cast<const void*>(high));
    out[0] = _mm512_unpacklo_epi16(even, odd);
    out[1] = _mm512_unpackhi_epi16(even, odd);
  }
  BATON_OP void tidy_short_pairs(I* sums) {
    const I low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const I high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const I first = _mm512_permutex2var_epi64(sums[0], low, sums[1]);
    sums[1] = _mm512_permutex2var_epi64(sums[0], high, sums[1]);
    sums[0] = first;
  }
  BATON_OP void loose_byte_pairs(const std::uint8_t* low, const std::uint8_t* high, I* out) {
    const __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
    const __m256i odd = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high));
    out[0] = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(even, odd));
    out[1] = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(even, odd));
  }
  BATON_OP void tidy_byte_pairs(I* sums) {
    const I first = _mm512_shuffle_i32x4(sums[0], sums[1], 0x44);
    sums[1] = _mm512_shuffle_i32x4(sums[0], sums[1], 0xEE);
    sums[0] = first;
  }
  // 16 codes, rounded to nearest.
  BATON_OP void store_short(std::int16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
  }
  // 16 FP8 numbers, divided by 256: a half has eight more exponents below.
  BATON_OP F load_e4m3(const std::uint8_t* p) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i number = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7F)), 7);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    return _mm512_cvtph_ps(_mm256_or_si256(number, sign));
  }
  BATON_OP F to_float(H halves) {
    return _mm512_cvtph_ps(halves);
  }
  BATON_OP F as_float(I x) {
    return _mm512_castsi512_ps(x);
  }
  // The larger of `top` and the magnitude, compared as bits: a NaN is the largest of all.
  BATON_OP I magnitudes(I top, F x) {
    return _mm512_max_epu32(
        top, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF)));
  }
  BATON_OP H hzero() {
    return _mm256_setzero_si256();
  }
  BATON_OP H magnitudes(H top, const std::uint16_t* p) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_max_epu16(top, _mm256_and_si256(raw, _mm256_set1_epi16(0x7FFF)));
  }
  BATON_OP std::uint32_t largest_lane(I x) {
    return _mm512_reduce_max_epu32(x);
  }
  BATON_OP std::uint16_t largest_lane(H x) {
    const __m128i top = _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(top, _mm_set1_epi16(-1)));
    return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(least));
  }

  // 32 floats a0 b0 a1 b1 ... as 16 a and 16 b, and back.
  BATON_OP void split_pairs(F x, F y, F& a, F& b) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    a = _mm512_permutex2var_ps(x, even, y);
    b = _mm512_permutex2var_ps(x, odd, y);
  }
  BATON_OP void join_pairs(F a, F b, F& x, F& y) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    x = _mm512_permutex2var_ps(a, low, b);
    y = _mm512_permutex2var_ps(a, high, b);
  }
  // ((l0+l8)+(l4+l12)) ... : halves are added to each other, four times.
  BATON_OP float sum_tree(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  BATON_OP float largest(F x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
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
  BATON_OP M first(std::size_t n) {
    return static_cast<M>((std::uint32_t{1} << n) - 1);
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
