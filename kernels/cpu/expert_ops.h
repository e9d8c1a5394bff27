// Operations of a few families alone: soft caps, and the weighted sum of experts' outputs.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/row_ops.h"

namespace baton::kernels::cpu {
namespace {

template <class Isa>
void softcap(float* x, std::size_t n, float cap) {
  using F = typename Isa::F;
  const F wide = Isa::set1(cap);
  const F inverse = Isa::set1(1.0F / cap);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const std::size_t count = n - i < kLanes ? n - i : kLanes;
    const F bent = tanh<Isa>(Isa::mul(Isa::load_n(x + i, count), inverse));
    Isa::store_n(x + i, Isa::mul(bent, wide), count);
  }
}

template <class Isa>
void mix_rows(const float* x,
              std::size_t dim,
              const std::uint32_t* rows,
              const float* weights,
              std::size_t used,
              float* out) {
  using F = typename Isa::F;
  for (std::size_t i = 0; i < dim; i += kLanes) {
    const std::size_t count = dim - i < kLanes ? dim - i : kLanes;
    F sum = Isa::zero();
    for (std::size_t j = 0; j < used; ++j) {
      const F part = Isa::load_n(x + rows[j] * dim + i, count);
      sum = Isa::fma(Isa::set1(weights[j]), part, sum);
    }
    Isa::store_n(out + i, sum, count);
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
