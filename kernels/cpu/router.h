// Chooses a row's experts. Few numbers a row, so one plain function serves every instruction set.
//
// Thread: pure. Failure: none.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace baton::kernels::cpu {

// logits: [count]; experts, weights: [used]. See Backend::route.
void route_row(const float* logits,
               const RouteParams& params,
               std::uint32_t* experts,
               float* weights);

}  // namespace baton::kernels::cpu
