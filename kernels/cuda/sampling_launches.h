// Launches of the sampling kernels. Pointers are the device's.
//
// Thread: the stream's owner. Failure: none.
#pragma once

#include "kernels/cuda/sampling_args.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

// The edits of the logits, then the draws.
void launch_sampling(Stream stream, const SampleArgs& args);

}  // namespace baton::kernels::cuda
