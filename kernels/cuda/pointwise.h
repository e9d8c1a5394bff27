// Operations on single numbers: gated activations, sums, soft caps; and rows gathered by number.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/math.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kPointThreads = 256;

// A thread a number, blocks along a row, rows along y (65535 at most in a launch).
inline LaunchShape pointwise_shape(std::uint32_t rows, std::uint32_t dim) {
  return {.x = (dim + kPointThreads - 1) / kPointThreads, .y = rows, .threads = kPointThreads};
}

BATON_DEVICE unsigned column_index() {
  return block_index() * kPointThreads + thread_index();
}

struct GatedArgs {
  const float* gate = nullptr;  // [rows][stride], the first dim of each
  const float* up = nullptr;
  float* out = nullptr;  // may be gate
  std::size_t stride = 0;
  std::uint32_t dim = 0;
};

[[maybe_unused]] static BATON_KERNEL(kPointThreads) silu_mul(GatedArgs args) {
  if (column_index() < args.dim) {
    const std::size_t at = block_index_y() * args.stride + column_index();
    args.out[at] = silu_of(args.gate[at]) * args.up[at];
  }
}

[[maybe_unused]] static BATON_KERNEL(kPointThreads) gelu_mul(GatedArgs args) {
  if (column_index() < args.dim) {
    const std::size_t at = block_index_y() * args.stride + column_index();
    args.out[at] = gelu_of(args.gate[at]) * args.up[at];
  }
}

// x += y, where every row of x has a row of y of its own (y_stride dim) or all share one (0).
struct AddArgs {
  float* x = nullptr;  // [rows][dim]
  const float* y = nullptr;
  std::size_t y_stride = 0;
  std::uint32_t dim = 0;
};

[[maybe_unused]] static BATON_KERNEL(kPointThreads) add_rows(AddArgs args) {
  if (column_index() < args.dim) {
    args.x[std::size_t{block_index_y()} * args.dim + column_index()] +=
        args.y[block_index_y() * args.y_stride + column_index()];
  }
}

// x = cap * tanh(x / cap)
struct SoftcapArgs {
  float* x = nullptr;  // [rows][dim]
  std::uint32_t dim = 0;
  float cap = 0.0F;
};

[[maybe_unused]] static BATON_KERNEL(kPointThreads) softcap_rows(SoftcapArgs args) {
  if (column_index() < args.dim) {
    float& x = args.x[std::size_t{block_index_y()} * args.dim + column_index()];
    x = args.cap * tanh_of(x / args.cap);
  }
}

// out[r] = sum of weights[r][j] * x[rows[r][j]], j ascending; without weights `used` is 1 and the
// row is copied.
struct MixArgs {
  const float* x = nullptr;             // rows of dim
  const std::uint32_t* rows = nullptr;  // [out rows][used]
  const float* weights = nullptr;       // [out rows][used]
  float* out = nullptr;                 // [out rows][dim]; not x
  std::uint32_t used = 1;
  std::uint32_t dim = 0;
};

[[maybe_unused]] static BATON_KERNEL(kPointThreads) mix_rows(MixArgs args) {
  if (column_index() >= args.dim) {
    return;
  }
  const std::size_t row = block_index_y();
  float sum = 0.0F;
  for (std::size_t j = row * args.used; j < (row + 1) * args.used; ++j) {
    const float x = args.x[std::size_t{args.rows[j]} * args.dim + column_index()];
    sum = args.weights == nullptr ? x : fma(args.weights[j], x, sum);
  }
  args.out[row * args.dim + column_index()] = sum;
}

}  // namespace baton::kernels::cuda
