// Puts new keys and values into an arena's blocks.
//
// Thread: calls for different kv heads may run in parallel. Failure: none; the backend has checked.
#pragma once

#include <cstddef>

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

// All new tokens of `slice`, one of the kv heads of `params`. k, v: [rows][stride], heads at
// h * head_dim.
void write_head(const KernelTable& kernels,
                const KvArenaView& arena,
                const AttentionParams& params,
                const AttentionSlice& slice,
                std::size_t head,
                const float* k,
                const float* v,
                std::size_t stride);

}  // namespace baton::kernels::cpu
