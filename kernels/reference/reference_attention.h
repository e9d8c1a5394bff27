// The reference backend's two operations on KV blocks.
//
// Thread: the caller's. Failure: none; wrong shapes end the process.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops.h"

namespace baton::kernels::reference {

void write_kv(const KvArenaView& arena,
              const AttentionParams& params,
              std::span<const AttentionSlice> slices,
              const float* k,
              const float* v,
              std::size_t stride);

void attention(const KvArenaView& arena,
               const AttentionParams& params,
               std::span<const AttentionSlice> slices,
               const float* q,
               std::size_t q_stride,
               float* out);

}  // namespace baton::kernels::reference
