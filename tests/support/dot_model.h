// A model of the AVX512-BF16 instructions, lane by lane after their published definitions:
// VCVTNE2PS2BF16 and VDPBF16PS, which takes a pair's odd elements first. Denormals are zeros, in
// and out. What kernels take in place of cpu::BfloatDot.
//
// Only emulating translation units include this, after simde_avx512.h. Thread: pure. Failure: none.
#pragma once

#include <cstdint>

#include "tests/support/tile_model.h"

namespace baton::kernels::testing {
namespace {

// `kOddFirst`: false makes another processor of it, for tests that it is told apart.
template <bool kOddFirst>
struct DotModel {
  struct Floats {
    float v[16];
  };
  struct Words {
    std::uint32_t v[16];
  };

  BATON_OP __m512i round(__m512 low, __m512 high) {
    const Floats halves[2] = {__builtin_bit_cast(Floats, low), __builtin_bit_cast(Floats, high)};
    Words out{};
    for (unsigned i = 0; i < 32; ++i) {
      out.v[i / 2] |= round(halves[i / 16].v[i % 16]) << 16 * (i % 2);
    }
    return __builtin_bit_cast(__m512i, out);
  }
  BATON_OP __m512 dot(__m512 sum, __m512i a, __m512i b) {
    auto out = __builtin_bit_cast(Floats, sum);
    const auto left = __builtin_bit_cast(Words, a);
    const auto right = __builtin_bit_cast(Words, b);
    for (unsigned i = 0; i < 16; ++i) {
      for (const bool odd : {kOddFirst, !kOddFirst}) {
        out.v[i] = tile_fma(element(left.v[i], odd), element(right.v[i], odd), out.v[i]);
      }
    }
    return __builtin_bit_cast(__m512, out);
  }

 private:
  static std::uint32_t round(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    if ((bits & 0x7F800000) == 0) {
      return (bits & 0x80000000) >> 16;
    }
    const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    return (nan ? bits | 0x00400000 : bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  }
  static float element(std::uint32_t pair, bool odd) {
    return __builtin_bit_cast(float, odd ? pair & 0xFFFF0000 : pair << 16);
  }
};

}  // namespace
}  // namespace baton::kernels::testing
