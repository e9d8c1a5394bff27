// A device of the cuda backend in the host's memory, whose kernels the emulator runs. Copies and
// launches are over when they return; what is copied out later lands when it is waited for, so that
// who reads too early finds the old bytes.
//
// Thread: one. Failure: as the emulator.
#pragma once

#include <memory>

#include "kernels/cuda/device_memory.h"

namespace baton::testing {

// `multiprocessors`: few or many of them make the backend cut products differently. `bytes`: memory
// there is.
std::unique_ptr<kernels::cuda::Device> make_emulated_device(unsigned multiprocessors = 132,
                                                            std::size_t bytes = std::size_t{1}
                                                                                << 30);

}  // namespace baton::testing
