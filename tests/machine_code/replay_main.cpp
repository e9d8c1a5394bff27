// Prints the hashes of kernel_replay.h for this machine's scalar kernels, one a line.
#include <cstdio>
#include <memory>

#include "tests/machine_code/kernel_replay.h"

int main() {
  using namespace baton::kernels::cpu;  // NOLINT(google-build-using-namespace)
  const auto memory = std::make_unique<ReplayMemory>();
  std::uint64_t hashes[kMostHashes];
  const std::size_t count = replay(*scalar_kernels(), *memory, hashes);
  for (std::size_t i = 0; i < count; ++i) {
    std::printf("%016llx\n", static_cast<unsigned long long>(hashes[i]));
  }
}
