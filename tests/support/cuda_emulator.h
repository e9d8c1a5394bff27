// Runs a CUDA kernel's grid on the CPU, from the kernel's own source compiled as host code
// (kernels/cuda/device.h). Blocks run one after the other; a block's threads are fibres that change
// at barriers and where a warp does something together. Between two such places a thread runs alone
// from end to end, in one of two orders: a kernel whose results differ between them lacks a
// barrier.
//
// Shared memory holds 0xFF bytes when a block begins, asynchronous copies land when they are waited
// for, and a tensor product gives each element as one sum in double, rounded once: closer than any
// hardware, whose last bits differ.
//
// Source: CUDA C++ programming guide; PTX ISA 9.0, section on mma fragments.
//
// Thread: one at a time a process. Failure: threads of a warp that meet at different places, a
// barrier that some threads never reach, and a launch that a device would refuse end the process
// with a sentence.
#pragma once

#include <functional>

#include "kernels/cuda/device.h"

namespace baton::testing {

enum class ThreadOrder { Ascending, Descending };

// Calls `thread` once for each thread of each block.
void run_grid(const kernels::cuda::LaunchShape& shape,
              const std::function<void()>& thread,
              ThreadOrder order = ThreadOrder::Ascending);

// kernel<<<shape>>>(arguments)
template <class Arguments>
void launch(void (*kernel)(Arguments),
            const kernels::cuda::LaunchShape& shape,
            const Arguments& arguments,
            ThreadOrder order = ThreadOrder::Ascending) {
  run_grid(
      shape, [&] { kernel(arguments); }, order);
}

}  // namespace baton::testing
