// The argument structs of the kernels on rows, for whoever launches them.
//
// Thread: plain values. Failure: none.
#pragma once

#include "kernels/cuda/hadamard.h"
#include "kernels/cuda/keep_rows.h"
#include "kernels/cuda/kv_write.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
