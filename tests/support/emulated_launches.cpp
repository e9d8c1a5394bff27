// Runs what kernels/cuda/*_launches.cu launch, compiled as host code, on the emulator.
#include "kernels/cuda/launch.h"
#include "tests/support/cuda_emulator.h"

namespace baton::kernels::cuda {

void run_blocks(const LaunchShape& shape, const std::function<void()>& thread) {
  baton::testing::run_grid(shape, thread);
}

}  // namespace baton::kernels::cuda
