// AVX-512 intrinsics for machines without AVX-512: SIMDe's portable ones under the native names,
// and below those that it lacks. Code that includes this first and isa_avx512.h after it is the
// AVX-512 code, built for AVX2. An intrinsic that neither has is a compile error ("target specific
// option mismatch") that names it: write it here from its definition; isa_ops_test.cpp checks the
// result.
//
// Only emulating translation units include this. Thread: pure. Failure: none.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cstdint>
#include <cstring>

namespace baton::simde_avx512 {
namespace {

struct FloatHalves {
  __m256 low, high;
};
struct IntHalves {
  __m256i low, high;
};
// As arrays: one definition an intrinsic, read from the manual.
template <class T>
struct Lanes {
  T v[16];
};

[[gnu::always_inline]] inline __m512 join(__m256 low, __m256 high) {
  return __builtin_bit_cast(__m512, FloatHalves{low, high});
}
[[gnu::always_inline]] inline __m512i join(__m256i low, __m256i high) {
  return __builtin_bit_cast(__m512i, IntHalves{low, high});
}
[[gnu::always_inline]] inline FloatHalves halves(__m512 x) {
  return __builtin_bit_cast(FloatHalves, x);
}
[[gnu::always_inline]] inline IntHalves halves(__m512i x) {
  return __builtin_bit_cast(IntHalves, x);
}

[[gnu::always_inline]] inline __m512 maskz_loadu_ps(__mmask16 mask, const void* p) {
  Lanes<float> out{};
  for (unsigned i = 0; i < 16; ++i) {
    if ((mask >> i & 1U) != 0) {
      std::memcpy(&out.v[i], static_cast<const float*>(p) + i, sizeof(float));
    }
  }
  return __builtin_bit_cast(__m512, out);
}
[[gnu::always_inline]] inline void mask_storeu_ps(void* p, __mmask16 mask, __m512 x) {
  const auto in = __builtin_bit_cast(Lanes<float>, x);
  for (unsigned i = 0; i < 16; ++i) {
    if ((mask >> i & 1U) != 0) {
      std::memcpy(static_cast<float*>(p) + i, &in.v[i], sizeof(float));
    }
  }
}
[[gnu::always_inline]] inline __m256i maskz_loadu_epi16(__mmask16 mask, const void* p) {
  Lanes<std::uint16_t> out{};
  for (unsigned i = 0; i < 16; ++i) {
    if ((mask >> i & 1U) != 0) {
      std::memcpy(&out.v[i], static_cast<const std::uint16_t*>(p) + i, sizeof(std::uint16_t));
    }
  }
  return __builtin_bit_cast(__m256i, out);
}

[[gnu::always_inline]] inline __m512 cvtph_ps(__m256i x) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
              _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
template <int kRounding>
[[gnu::always_inline]] inline __m256i cvtps_ph(__m512 x) {
  const FloatHalves in = halves(x);
  return _mm256_set_m128i(_mm256_cvtps_ph(in.high, kRounding), _mm256_cvtps_ph(in.low, kRounding));
}
[[gnu::always_inline]] inline __m512 cvtepi32_ps(__m512i x) {
  const IntHalves in = halves(x);
  return join(_mm256_cvtepi32_ps(in.low), _mm256_cvtepi32_ps(in.high));
}
[[gnu::always_inline]] inline __m512i cvtps_epi32(__m512 x) {
  const FloatHalves in = halves(x);
  return join(_mm256_cvtps_epi32(in.low), _mm256_cvtps_epi32(in.high));
}
[[gnu::always_inline]] inline __m512i cvtepu8_epi32(__m128i x) {
  return join(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}
[[gnu::always_inline]] inline __m512i cvtepi8_epi32(__m128i x) {
  return join(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}
[[gnu::always_inline]] inline __m512i cvtepu16_epi32(__m256i x) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}
[[gnu::always_inline]] inline __m128i cvtepi32_epi8(__m512i x) {  // the low byte, no saturation
  const auto in = __builtin_bit_cast(Lanes<std::uint32_t>, x);
  Lanes<std::uint8_t> out;
  for (unsigned i = 0; i < 16; ++i) {
    out.v[i] = static_cast<std::uint8_t>(in.v[i]);
  }
  return __builtin_bit_cast(__m128i, out);
}
template <int kHalf>
[[gnu::always_inline]] inline __m256 extractf32x8_ps(__m512 x) {
  return kHalf == 0 ? halves(x).low : halves(x).high;
}
[[gnu::always_inline]] inline std::uint32_t reduce_max_epu32(__m512i x) {
  const auto in = __builtin_bit_cast(Lanes<std::uint32_t>, x);
  std::uint32_t top = 0;
  for (const std::uint32_t lane : in.v) {
    top = lane > top ? lane : top;
  }
  return top;
}

}  // namespace
}  // namespace baton::simde_avx512

// GCC has some of these as macros when it does not optimise.
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi32_epi8
#undef _mm512_extractf32x8_ps
#undef _mm512_reduce_max_epu32
#define _mm512_maskz_loadu_ps(mask, p) baton::simde_avx512::maskz_loadu_ps(mask, p)
#define _mm512_mask_storeu_ps(p, mask, x) baton::simde_avx512::mask_storeu_ps(p, mask, x)
#define _mm256_maskz_loadu_epi16(mask, p) baton::simde_avx512::maskz_loadu_epi16(mask, p)
#define _mm512_cvtph_ps(x) baton::simde_avx512::cvtph_ps(x)
#define _mm512_cvtps_ph(x, rounding) baton::simde_avx512::cvtps_ph<(rounding)>(x)
#define _mm512_cvtepi32_ps(x) baton::simde_avx512::cvtepi32_ps(x)
#define _mm512_cvtps_epi32(x) baton::simde_avx512::cvtps_epi32(x)
#define _mm512_cvtepu8_epi32(x) baton::simde_avx512::cvtepu8_epi32(x)
#define _mm512_cvtepi8_epi32(x) baton::simde_avx512::cvtepi8_epi32(x)
#define _mm512_cvtepu16_epi32(x) baton::simde_avx512::cvtepu16_epi32(x)
#define _mm512_cvtepi32_epi8(x) baton::simde_avx512::cvtepi32_epi8(x)
#define _mm512_extractf32x8_ps(x, half) baton::simde_avx512::extractf32x8_ps<(half)>(x)
#define _mm512_reduce_max_epu32(x) baton::simde_avx512::reduce_max_epu32(x)
