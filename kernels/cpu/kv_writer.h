// Puts new keys and values into an arena's blocks.
//
// Thread: calls for different rows may run in parallel. Failure: none; the backend has checked.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

// New tokens [first, first + count) of all slices' together, all kv heads of `params`. k, v:
// [rows][stride], heads at h * head_dim.
void write_rows(const KernelTable& kernels,
                const KvArenaView& arena,
                const AttentionParams& params,
                std::span<const AttentionSlice> slices,
                std::size_t first,
                std::size_t count,
                const float* k,
                const float* v,
                std::size_t stride);

}  // namespace baton::kernels::cpu
