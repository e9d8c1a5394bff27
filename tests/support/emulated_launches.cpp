// Runs what kernels/cuda/*_launches.cu launch, compiled as host code, on the emulator: one grid at
// a time, also where several ranks' threads launch. A stream that records keeps the launch instead.
#include "tests/support/emulated_launches.h"

#include <mutex>
#include <utility>

#include "tests/support/cuda_emulator.h"

namespace baton::testing {

void run_launch(const kernels::cuda::HostLaunch& launch) {
  static std::mutex emulator;
  const std::lock_guard lock(emulator);
  run_grid(launch.shape, launch.thread);
}

}  // namespace baton::testing

namespace baton::kernels::cuda {

void put_on(Stream stream, HostLaunch launch) {
  if (stream.handle != nullptr) {
    static_cast<std::vector<HostLaunch>*>(stream.handle)->push_back(std::move(launch));
  } else {
    baton::testing::run_launch(launch);
  }
}

}  // namespace baton::kernels::cuda
