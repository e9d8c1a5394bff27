// Operations on single rows: norms, rotary embedding, gated activations, and the exponential that
// they and attention share.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include <xmmintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/hadamard.h"

namespace baton::kernels::cpu {
namespace {

// 2^x by rounding to the nearest integer and a polynomial on [-1/2, 1/2] (relative error below
// 1e-7; exactly 1 at 0). Clamped to [-126, 127].
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F exp2(typename Isa::F x) {
  using F = typename Isa::F;
  const F magic = Isa::set1(12582912.0F);  // 1.5 * 2^23
  x = Isa::max(x, Isa::set1(-126.0F));
  x = Isa::min(x, Isa::set1(127.0F));
  const F shifted = Isa::add(x, magic);
  const F f = Isa::sub(x, Isa::sub(shifted, magic));
  // (2^f - 1) / f interpolated at six Chebyshev nodes.
  F p = Isa::set1(0.000154531634F);
  p = Isa::fma(p, f, Isa::set1(0.00133908633F));
  p = Isa::fma(p, f, Isa::set1(0.00961808302F));
  p = Isa::fma(p, f, Isa::set1(0.0555035695F));
  p = Isa::fma(p, f, Isa::set1(0.240226507F));
  p = Isa::fma(p, f, Isa::set1(0.693147182F));
  p = Isa::fma(p, f, Isa::set1(1.0F));
  return Isa::add_exponent(p, Isa::bits(shifted));
}

constexpr float kLog2E = 1.44269504F;

// x / (1 + e^-(factor x)) with -factor * log2 e given.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F sigmoid_times(typename Isa::F x,
                                                            typename Isa::F exponent) {
  return Isa::div(x, Isa::add(Isa::set1(1.0F), exp2<Isa>(exponent)));
}

// tanh(x) = 1 - 2 / (e^2x + 1)
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F tanh(typename Isa::F x) {
  using F = typename Isa::F;
  const F one = Isa::set1(1.0F);
  const F e = exp2<Isa>(Isa::mul(x, Isa::set1(2.0F * kLog2E)));
  return Isa::sub(one, Isa::div(Isa::set1(2.0F), Isa::add(e, one)));
}

template <class Isa>
void rms_norm(
    const float* x, std::size_t m, std::size_t dim, const float* weight, float eps, float* out) {
  using F = typename Isa::F;
  for (std::size_t row = 0; row < m; ++row, x += dim, out += dim) {
    F squares = Isa::zero();
    std::size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      const F v = Isa::load(x + i);
      squares = Isa::fma(v, v, squares);
    }
    if (i < dim) {
      const F v = Isa::load_n(x + i, dim - i);
      squares = Isa::fma(v, v, squares);
    }
    const float mean = Isa::sum_tree(squares) / static_cast<float>(dim);
    const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
    const F factor = Isa::set1(1.0F / root);
    for (i = 0; i + kLanes <= dim; i += kLanes) {
      Isa::store(out + i, Isa::mul(Isa::mul(Isa::load(x + i), factor), Isa::load(weight + i)));
    }
    if (i < dim) {
      const std::size_t n = dim - i;
      const F scaled = Isa::mul(Isa::load_n(x + i, n), factor);
      Isa::store_n(out + i, Isa::mul(scaled, Isa::load_n(weight + i, n)), n);
    }
  }
}

template <class Isa>
[[gnu::always_inline]] inline void rotate(typename Isa::F& a,
                                          typename Isa::F& b,
                                          typename Isa::F c,
                                          typename Isa::F s) {
  const typename Isa::F turned = Isa::fma(a, c, Isa::neg(Isa::mul(b, s)));
  b = Isa::fma(a, s, Isa::mul(b, c));
  a = turned;
}

template <class Isa>
void rope_halves(float* x,
                 std::size_t heads,
                 std::size_t head_dim,
                 const float* c,
                 const float* s,
                 std::size_t half) {
  using F = typename Isa::F;
  for (std::size_t h = 0; h < heads; ++h, x += head_dim) {
    for (std::size_t i = 0; i < half; i += kLanes) {
      const std::size_t n = half - i < kLanes ? half - i : kLanes;
      F a = Isa::load_n(x + i, n);
      F b = Isa::load_n(x + half + i, n);
      rotate<Isa>(a, b, Isa::load_n(c + i, n), Isa::load_n(s + i, n));
      Isa::store_n(x + i, a, n);
      Isa::store_n(x + half + i, b, n);
    }
  }
}

template <class Isa>
void rope_interleaved(float* x,
                      std::size_t heads,
                      std::size_t head_dim,
                      const float* c,
                      const float* s,
                      std::size_t half) {
  using F = typename Isa::F;
  for (std::size_t h = 0; h < heads; ++h, x += head_dim) {
    for (std::size_t i = 0; i < half; i += kLanes) {
      const std::size_t n = half - i < kLanes ? half - i : kLanes;
      const std::size_t first = 2 * n < kLanes ? 2 * n : kLanes;
      const std::size_t second = 2 * n - first;
      F low = Isa::load_n(x + 2 * i, first);
      F high = second == 0 ? Isa::zero() : Isa::load_n(x + 2 * i + kLanes, second);
      F a;
      F b;
      Isa::split_pairs(low, high, a, b);
      rotate<Isa>(a, b, Isa::load_n(c + i, n), Isa::load_n(s + i, n));
      Isa::join_pairs(a, b, low, high);
      Isa::store_n(x + 2 * i, low, first);
      if (second != 0) {
        Isa::store_n(x + 2 * i + kLanes, high, second);
      }
    }
  }
}

// Each stage adds neighbours and lays sums before differences (Pease 1968): the additions of
// `hadamard_row` without steps inside of a vector.
template <class Isa, int kVectors>
[[gnu::always_inline]] inline void hadamard_block(float* x, float factor) {
  using F = typename Isa::F;
  F now[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    now[v] = Isa::load(x + v * kLanes);
  }
  for (std::size_t half = 1; half < kVectors * kLanes; half *= 2) {
    F next[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors / 2; ++v) {
      F a;
      F b;
      Isa::split_pairs(now[2 * v], now[2 * v + 1], a, b);
      next[v] = Isa::add(a, b);
      next[v + kVectors / 2] = Isa::sub(a, b);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      now[v] = next[v];
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Isa::store(x + v * kLanes, Isa::mul(now[v], Isa::set1(factor)));
  }
}

template <class Isa>
void hadamard(float* x, std::size_t rows, std::size_t dim, float factor) {
  const std::size_t size = hadamard_size(dim);
  const auto blocks = [&](auto block) {
    for (std::size_t at = 0; at < rows * dim; at += size) {
      block(x + at);
    }
  };
  switch (size) {
    case 2 * kLanes:
      return blocks([&](float* at) { hadamard_block<Isa, 2>(at, factor); });
    case 4 * kLanes:
      return blocks([&](float* at) { hadamard_block<Isa, 4>(at, factor); });
    case 8 * kLanes:
      return blocks([&](float* at) { hadamard_block<Isa, 8>(at, factor); });
    case 16 * kLanes:
      return blocks([&](float* at) { hadamard_block<Isa, 16>(at, factor); });
    default:
      return blocks([&](float* at) { hadamard_row(at, size, factor); });
  }
}

template <class Isa>
struct SiluOp {
  [[gnu::always_inline]] static inline typename Isa::F apply(typename Isa::F g) {
    return sigmoid_times<Isa>(g, Isa::mul(g, Isa::set1(-kLog2E)));
  }
};

// GELU's tanh form is x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3).
template <class Isa>
struct GeluOp {
  [[gnu::always_inline]] static inline typename Isa::F apply(typename Isa::F g) {
    const typename Isa::F cubic = Isa::fma(Isa::mul(Isa::mul(g, g), g), Isa::set1(0.044715F), g);
    return sigmoid_times<Isa>(g, Isa::mul(cubic, Isa::set1(-2.0F * kLog2E * 0.7978845608F)));
  }
};

template <class Isa, class Op>
void gated(const float* gate, const float* up, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Isa::store(out + i, Isa::mul(Op::apply(Isa::load(gate + i)), Isa::load(up + i)));
  }
  if (i < n) {
    const typename Isa::F g = Op::apply(Isa::load_n(gate + i, n - i));
    Isa::store_n(out + i, Isa::mul(g, Isa::load_n(up + i, n - i)), n - i);
  }
}

template <class Isa>
void add_rows(float* x, const float* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Isa::store(x + i, Isa::add(Isa::load(x + i), Isa::load(y + i)));
  }
  for (; i < n; ++i) {
    x[i] += y[i];
  }
}

template <class Isa>
void to_half(const float* x, std::size_t n, std::uint16_t* out) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Isa::store_half(out + i, Isa::load(x + i));
  }
  if (i < n) {
    std::uint16_t lanes[kLanes];
    Isa::store_half(lanes, Isa::load_n(x + i, n - i));
    __builtin_memcpy(out + i, lanes, (n - i) * sizeof(lanes[0]));
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
