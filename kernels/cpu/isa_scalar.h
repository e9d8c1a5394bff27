// 16 float lanes in an array, for machines without AVX2 and as the definition of what the other
// instruction sets compute. Only kernels_scalar.cpp includes this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

#define BATON_OP [[gnu::always_inline]] static inline

struct Scalar {
  struct F {
    float v[16];
  };
  struct I {
    std::int32_t v[16];
  };
  struct W {
    std::uint8_t v[64];
  };
  struct M {
    bool v[16];
  };
  struct H {
    std::uint16_t v[16];
  };
  static constexpr const char* kName = "scalar";
  static constexpr int kQuantRows = 2;
  static constexpr int kFloatRows = 2;
  static constexpr int kGroups = 1;
  static constexpr int kQueries = 2;
  static constexpr int kGranules = 1;
  static constexpr bool kSignedBytes = false;
  static constexpr bool kNarrowSums = false;
  static constexpr bool kAttendsInRegisters = false;

  template <class Op>
  BATON_OP F each(Op op) {
    F out;
    for (std::size_t i = 0; i < 16; ++i) {
      out.v[i] = op(i);
    }
    return out;
  }
  template <class Op>
  BATON_OP W codes(Op op) {
    W out;
    for (std::size_t i = 0; i < 64; ++i) {
      out.v[i] = static_cast<std::uint8_t>(op(i));
    }
    return out;
  }

  BATON_OP F zero() { return set1(0.0F); }
  BATON_OP F set1(float x) {
    return each([&](std::size_t) { return x; });
  }
  BATON_OP F load(const float* p) {
    return each([&](std::size_t i) { return p[i]; });
  }
  BATON_OP F load_n(const float* p, std::size_t n) {
    return each([&](std::size_t i) { return i < n ? p[i] : 0.0F; });
  }
  BATON_OP void store(float* p, F x) { store_n(p, x, 16); }
  BATON_OP void store_n(float* p, F x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      p[i] = x.v[i];
    }
  }
  BATON_OP F load(const std::uint16_t* p) {
    return each([&](std::size_t i) { return half_to_float(p[i]); });
  }
  BATON_OP F load_n(const std::uint16_t* p, std::size_t n) {
    return each([&](std::size_t i) { return i < n ? half_to_float(p[i]) : 0.0F; });
  }
  BATON_OP F load_bfloat(const std::uint16_t* p) {
    return each([&](std::size_t i) { return bfloat_to_float(p[i]); });
  }
  BATON_OP void store_half(std::uint16_t* p, F x) {
    for (std::size_t i = 0; i < 16; ++i) {
      p[i] = float_to_half(x.v[i]);
    }
  }
  BATON_OP F load_u8(const std::uint8_t* p) {
    return each([&](std::size_t i) { return static_cast<float>(p[i]); });
  }
  BATON_OP F load_s8(const std::uint8_t* p) {
    return each([&](std::size_t i) { return static_cast<float>(static_cast<std::int8_t>(p[i])); });
  }
  BATON_OP F add(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] + b.v[i]; });
  }
  BATON_OP F sub(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] - b.v[i]; });
  }
  BATON_OP F mul(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] * b.v[i]; });
  }
  BATON_OP F div(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] / b.v[i]; });
  }
  // Correctly rounded by definition, so a library call here still gives the same bits.
  BATON_OP F fma(F a, F b, F c) {
    return each([&](std::size_t i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  // As the vector instructions do: the second operand when either is a NaN.
  BATON_OP F max(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  BATON_OP F min(F a, F b) {
    return each([&](std::size_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  BATON_OP F neg(F a) {
    return each([&](std::size_t i) { return -a.v[i]; });
  }
  BATON_OP F add_exponent(F x, I n) {
    return each([&](std::size_t i) {
      const auto whole = __builtin_bit_cast(std::uint32_t, x.v[i]);
      return __builtin_bit_cast(float, whole + (static_cast<std::uint32_t>(n.v[i]) << 23));
    });
  }
  BATON_OP I bits(F x) {
    I out;
    for (std::size_t i = 0; i < 16; ++i) {
      out.v[i] = __builtin_bit_cast(std::int32_t, x.v[i]);
    }
    return out;
  }

  BATON_OP I iset1(std::int32_t x) {
    I out;
    for (std::int32_t& lane : out.v) {
      lane = x;
    }
    return out;
  }
  template <int kShift>
  BATON_OP I shift_left(I x) {
    for (std::int32_t& lane : x.v) {
      lane *= 1 << kShift;
    }
    return x;
  }
  BATON_OP F to_float(I x) {
    return each([&](std::size_t i) { return static_cast<float>(x.v[i]); });
  }

  BATON_OP M range(std::size_t low, std::size_t high) {
    M out;
    for (std::size_t i = 0; i < 16; ++i) {
      out.v[i] = low <= i && i < high;
    }
    return out;
  }
  BATON_OP F select(M mask, F yes, F no) {
    return each([&](std::size_t i) { return mask.v[i] ? yes.v[i] : no.v[i]; });
  }

  BATON_OP W load_codes(const std::uint8_t* p) {
    return codes([&](std::size_t i) { return p[i]; });
  }
  BATON_OP void store_codes(std::uint8_t* p, W w) { __builtin_memcpy(p, w.v, sizeof(w.v)); }
  BATON_OP W low_nibbles(W w) {
    return codes([&](std::size_t i) { return w.v[i] & 0x0F; });
  }
  BATON_OP W high_nibbles(W w) {
    return codes([&](std::size_t i) { return w.v[i] >> 4; });
  }
  BATON_OP W with_fifth_bits(W w, const std::uint8_t* packed) {
    return codes([&](std::size_t i) { return w.v[i] | (((packed[i / 8] >> (i % 8)) & 1) << 4); });
  }
  template <int kPart>
  BATON_OP W with_top_bits(W w, W packed) {
    return codes([&](std::size_t i) { return w.v[i] | (((packed.v[i] >> (2 * kPart)) & 3) << 4); });
  }
  template <bool kWide>
  BATON_OP I dot4(I acc, W w, std::uint32_t a) {
    std::int8_t activation[4];
    __builtin_memcpy(activation, &a, sizeof(a));
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 4; ++j) {
        acc.v[i] += static_cast<std::int32_t>(w.v[4 * i + j]) * activation[j];
      }
    }
    return acc;
  }

  BATON_OP std::uint32_t largest_magnitude(const float* x) {
    std::uint32_t top = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFU;
      top = magnitude > top ? magnitude : top;
    }
    return top;
  }
  BATON_OP void quantise32(const float* x, float factor, std::int8_t* out) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: leaves the nearest even integer
    for (std::size_t i = 0; i < 32; ++i) {
      const float whole = (x[i] * factor + kRound) - kRound;
      // Only a block that holds no number at all (its scale is NaN) gets here with one.
      out[i] =
          whole >= -128.0F && whole <= 127.0F ? static_cast<std::int8_t>(whole) : std::int8_t{0};
    }
  }
  BATON_OP std::int32_t sum16(const std::int8_t* in) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      sum += in[i];
    }
    return sum;
  }

  BATON_OP I iload(const std::int32_t* p) {
    I out;
    __builtin_memcpy(out.v, p, sizeof(out.v));
    return out;
  }
  BATON_OP void istore(std::int32_t* p, I x) { __builtin_memcpy(p, x.v, sizeof(x.v)); }
  // Sums wrap: what no token was written to may hold any codes.
  BATON_OP I dot2(I acc, I x, std::int32_t pair) {
    const auto low = [](std::int32_t v) { return static_cast<std::int16_t>(v & 0xFFFF); };
    for (std::size_t i = 0; i < 16; ++i) {
      const auto even = static_cast<std::uint32_t>(low(x.v[i]) * low(pair));
      const auto odd = static_cast<std::uint32_t>((x.v[i] >> 16) * (pair >> 16));
      acc.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(acc.v[i]) + even + odd);
    }
    return acc;
  }
  BATON_OP std::int32_t nearest(float x) {
    constexpr float kRound = 12582912.0F;
    const float whole = (x + kRound) - kRound;
    return whole >= -32768.0F && whole <= 32767.0F ? static_cast<std::int32_t>(whole) : 0;
  }
  BATON_OP I pack_pairs(F low, F high) {
    I out;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto even = static_cast<std::uint32_t>(nearest(low.v[i])) & 0xFFFFU;
      const auto odd = static_cast<std::uint32_t>(nearest(high.v[i])) << 16;
      out.v[i] = static_cast<std::int32_t>(even | odd);
    }
    return out;
  }
  BATON_OP I byte_pairs(const std::uint8_t* low, const std::uint8_t* high) {
    I out;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto even = static_cast<std::uint32_t>(static_cast<std::int8_t>(low[i])) & 0xFFFFU;
      const auto odd = static_cast<std::uint32_t>(static_cast<std::int8_t>(high[i])) << 16;
      out.v[i] = static_cast<std::int32_t>(even | odd);
    }
    return out;
  }
  BATON_OP I short_pairs(const std::int16_t* low, const std::int16_t* high) {
    I out;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto even = static_cast<std::uint32_t>(low[i]) & 0xFFFFU;
      const auto odd = static_cast<std::uint32_t>(high[i]) << 16;
      out.v[i] = static_cast<std::int32_t>(even | odd);
    }
    return out;
  }
  BATON_OP void store_short(std::int16_t* p, F x) {
    for (std::size_t i = 0; i < 16; ++i) {
      p[i] = static_cast<std::int16_t>(nearest(x.v[i]));
    }
  }
  BATON_OP F load_e4m3(const std::uint8_t* p) {
    return each([&](std::size_t i) {
      return half_to_float(static_cast<std::uint16_t>((p[i] & 0x7FU) << 7 | (p[i] & 0x80U) << 8));
    });
  }
  BATON_OP F to_float(H x) {
    return each([&](std::size_t i) { return half_to_float(x.v[i]); });
  }
  BATON_OP F as_float(I x) {
    return each([&](std::size_t i) { return __builtin_bit_cast(float, x.v[i]); });
  }
  BATON_OP I magnitudes(I top, F x) {
    for (std::size_t i = 0; i < 16; ++i) {
      const auto magnitude = __builtin_bit_cast(std::int32_t, x.v[i]) & 0x7FFFFFFF;
      top.v[i] = magnitude > top.v[i] ? magnitude : top.v[i];
    }
    return top;
  }
  BATON_OP H hzero() { return H{}; }
  BATON_OP H magnitudes(H top, const std::uint16_t* p) {
    for (std::size_t i = 0; i < 16; ++i) {
      const auto magnitude = static_cast<std::uint16_t>(p[i] & 0x7FFFU);
      top.v[i] = magnitude > top.v[i] ? magnitude : top.v[i];
    }
    return top;
  }
  BATON_OP std::uint32_t largest_lane(I x) {
    std::int32_t top = 0;
    for (const std::int32_t lane : x.v) {
      top = lane > top ? lane : top;
    }
    return static_cast<std::uint32_t>(top);
  }
  BATON_OP std::uint16_t largest_lane(H x) {
    std::uint16_t top = 0;
    for (const std::uint16_t lane : x.v) {
      top = lane > top ? lane : top;
    }
    return top;
  }

  BATON_OP void split_pairs(F x, F y, F& a, F& b) {
    for (std::size_t i = 0; i < 8; ++i) {
      a.v[i] = x.v[2 * i];
      b.v[i] = x.v[2 * i + 1];
      a.v[i + 8] = y.v[2 * i];
      b.v[i + 8] = y.v[2 * i + 1];
    }
  }
  BATON_OP void join_pairs(F a, F b, F& x, F& y) {
    for (std::size_t i = 0; i < 8; ++i) {
      x.v[2 * i] = a.v[i];
      x.v[2 * i + 1] = b.v[i];
      y.v[2 * i] = a.v[i + 8];
      y.v[2 * i + 1] = b.v[i + 8];
    }
  }
  BATON_OP float sum_tree(F x) {
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        x.v[i] += x.v[i + half];
      }
    }
    return x.v[0];
  }
  BATON_OP float largest(F x) {
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
      }
    }
    return x.v[0];
  }
  BATON_OP void prefetch(const void*) {}
  BATON_OP void prefetch_far(const void*) {}
};

}  // namespace
}  // namespace baton::kernels::cpu
