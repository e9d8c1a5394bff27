// Launches of the emulated device. Its stream's handle is null, or, while it records, the
// std::vector<HostLaunch> that keeps them.
//
// Thread: any. Failure: as the emulator.
#pragma once

#include <vector>

#include "kernels/cuda/launch.h"

namespace baton::testing {

void run_launch(const kernels::cuda::HostLaunch& launch);

}  // namespace baton::testing
