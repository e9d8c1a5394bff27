// Puts a kernel on a stream. With nvcc that is a launch; compiled as host code, where tests emulate
// the device, the grid runs before `launch` returns, or is kept where the device records.
//
// Only the launching files (*.cu) include this. Thread: the stream's owner. Failure: a launch that
// the device refuses leaves an error that the next copy from the device reports (cuda_device.cpp).
#pragma once

#ifndef __CUDACC__
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>
#endif

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

struct HostLaunch {
  const void* kernel = nullptr;
  LaunchShape shape;
  std::vector<unsigned char> arguments;  // their bytes, zeros where a struct is padded
  std::function<void()> thread;          // what one thread of one block does
};
// Whoever compiles the launches as host code defines it.
void put_on(Stream stream, HostLaunch launch);

template <class Arguments>
void launch(Stream stream,
            void (*kernel)(Arguments),
            const LaunchShape& shape,
            const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  Arguments plain = arguments;
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&plain);
#endif
  std::vector<unsigned char> bytes(sizeof(Arguments));
  std::memcpy(bytes.data(), &plain, sizeof(Arguments));
  put_on(stream,
         {reinterpret_cast<const void*>(kernel), shape, std::move(bytes), [kernel, arguments] {
            kernel(arguments);
          }});
}

#endif

}  // namespace baton::kernels::cuda
