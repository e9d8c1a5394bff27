// Runs what kernels/cuda/*_launches.cu launch, compiled as host code, on the emulator: one grid at
// a time, also where several ranks' threads launch.
#include <mutex>

#include "kernels/cuda/launch.h"
#include "tests/support/cuda_emulator.h"

namespace baton::kernels::cuda {

void run_blocks(const LaunchShape& shape, const std::function<void()>& thread) {
  static std::mutex emulator;
  const std::lock_guard lock(emulator);
  baton::testing::run_grid(shape, thread);
}

}  // namespace baton::kernels::cuda
