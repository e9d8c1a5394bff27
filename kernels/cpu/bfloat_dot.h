// Products of BF16 pairs by AVX512-BF16 instructions.
// Only kernels_avx512_bf16.cpp includes this.
#pragma once

#include <immintrin.h>

namespace baton::kernels::cpu {
namespace {

struct BfloatDot {
  // 32 floats rounded to nearest, ties to even, as 16 pairs; denormals become zeros.
  [[gnu::always_inline]] static inline __m512i round(__m512 low, __m512 high) {
    return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high, low));
  }
  // sum + a.odd * b.odd + a.even * b.even as VDPBF16PS adds them. Written out so that a sum stays
  // in its register: GCC copies it, and runs out of them.
  [[gnu::always_inline]] static inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
