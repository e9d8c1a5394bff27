// A few operations on the device beside the reference, before a node trusts it: a driver or a GPU
// that computes wrong is refused at start.
//
// Thread: as `Backend`. Failure: Unavailable that names the operation.
#pragma once

#include "common/base/error.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

Status self_check(Backend& backend);

}  // namespace baton::kernels::cuda
