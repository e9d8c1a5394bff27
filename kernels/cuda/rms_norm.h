// out = x / sqrt(mean(x²) + eps) * weight, a block a row. Each thread sums every 256th square, a
// warp adds its threads' by one tree, and the warps' sums are added in order.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kNormThreads = 256;

struct RmsNormArgs {
  const float* x = nullptr;       // [rows][dim]
  const float* weight = nullptr;  // [dim]
  float* out = nullptr;           // [rows][dim]; may be x
  std::uint32_t rows = 0;
  std::uint32_t dim = 0;
  float eps = 0.0F;
};

inline LaunchShape rms_norm_shape(const RmsNormArgs& args) {
  return {.x = args.rows, .threads = kNormThreads};
}

struct RmsNormShared {
  float sums[kNormThreads / kWarp];
};

[[maybe_unused]] static BATON_KERNEL(kNormThreads) rms_norm(RmsNormArgs args) {
  BATON_SHARED(RmsNormShared, shared);
  const std::size_t row = std::size_t{block_index()} * args.dim;
  float squares = 0.0F;
  for (unsigned i = thread_index(); i < args.dim; i += kNormThreads) {
    squares = fma(args.x[row + i], args.x[row + i], squares);
  }
  squares = warp_sum(squares);
  if (lane_index() == 0) {
    shared.sums[warp_index()] = squares;
  }
  sync_threads();
  float sum = 0.0F;
  for (const float part : shared.sums) {
    sum += part;
  }
  const float factor = 1.0F / square_root(sum / static_cast<float>(args.dim) + args.eps);
  for (unsigned i = thread_index(); i < args.dim; i += kNormThreads) {
    args.out[row + i] = args.x[row + i] * factor * args.weight[i];
  }
}

}  // namespace baton::kernels::cuda
