// Rotary embedding in place, a thread a pair of dimensions of one head.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kRopeThreads = 256;

struct RopeArgs {
  float* x = nullptr;  // [rows][stride], heads at h * head_dim
  std::size_t stride = 0;
  const std::uint32_t* positions = nullptr;  // [rows], below the table's
  const float* cosines = nullptr;            // [positions][half_dim]
  const float* sines = nullptr;
  std::uint32_t rows = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t half_dim = 0;  // pairs that turn; the rest of a head stays
  bool interleaved = false;    // pairs (2i, 2i + 1), else (i, i + half_dim)
};

inline LaunchShape rope_shape(const RopeArgs& args) {
  const std::uint32_t pairs = args.heads * args.half_dim;
  return {.x = (pairs + kRopeThreads - 1) / kRopeThreads, .y = args.rows, .threads = kRopeThreads};
}

[[maybe_unused]] static BATON_KERNEL(kRopeThreads) rope(RopeArgs args) {
  const unsigned pair = block_index() * kRopeThreads + thread_index();
  if (pair >= args.heads * args.half_dim) {
    return;
  }
  const unsigned row = block_index_y();
  const unsigned i = pair % args.half_dim;
  float* const head = args.x + row * args.stride + pair / args.half_dim * args.head_dim;
  const std::size_t angle = std::size_t{args.positions[row]} * args.half_dim + i;
  const float c = args.cosines[angle];
  const float s = args.sines[angle];
  float* const first = args.interleaved ? head + 2 * i : head + i;
  float* const second = args.interleaved ? first + 1 : first + args.half_dim;
  const float a = *first;
  const float b = *second;
  *first = fma(a, c, -(b * s));
  *second = fma(a, s, b * c);
}

}  // namespace baton::kernels::cuda
