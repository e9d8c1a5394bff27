// Puts a kernel on a stream. With nvcc that is a launch; compiled as host code, where tests emulate
// the device, the grid runs before `launch` returns.
//
// Only the launching files (*.cu) include this. Thread: the stream's owner. Failure: a launch that
// the device refuses leaves an error that the next copy from the device reports (cuda_device.cpp).
#pragma once

#include <functional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

#ifdef __CUDACC__

template <class Arguments>
void launch(Stream stream,
            void (*kernel)(Arguments),
            const LaunchShape& shape,
            const Arguments& arguments) {
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shape.dynamic_shared > kWithoutAsking) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shape.dynamic_shared));
  }
  kernel<<<dim3(shape.x, shape.y, shape.z),
           shape.threads,
           shape.dynamic_shared,
           static_cast<cudaStream_t>(stream.handle)>>>(arguments);
}

#else

// Calls `thread` once for each thread of each block; whoever compiles the launches as host code
// defines it.
void run_blocks(const LaunchShape& shape, const std::function<void()>& thread);

template <class Arguments>
void launch(Stream,
            void (*kernel)(Arguments),
            const LaunchShape& shape,
            const Arguments& arguments) {
  run_blocks(shape, [&] { kernel(arguments); });
}

#endif

}  // namespace baton::kernels::cuda
