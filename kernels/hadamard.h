// Rows times the Hadamard matrix (Sylvester's order): spreads what a few large numbers hold over
// all of a row, so that codes with one scale a row lose less. Applied twice it gives a row back,
// hadamard_size times as large. Sums and differences in one fixed order: the same bits everywhere.
//
// Source: QuaRot (Ashkboos et al. 2024), which turns keys and values so; the fast transform is
// Fino and Algazi 1976.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstddef>

namespace baton::kernels {

// Numbers that one matrix spans: the largest power of two that divides `dim`.
[[maybe_unused]] static constexpr std::size_t hadamard_size(std::size_t dim) {
  return dim & (~dim + 1);
}

// x = factor * H x, block by block. x: [dim]
[[maybe_unused]] static inline void hadamard_row(float* x, std::size_t dim, float factor) {
  const std::size_t size = hadamard_size(dim);
  for (std::size_t half = 1; half < size; half *= 2) {
    for (std::size_t at = 0; at < dim; at += 2 * half) {
      for (std::size_t i = at; i < at + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  for (std::size_t i = 0; i < dim; ++i) {
    x[i] *= factor;
  }
}

}  // namespace baton::kernels
