// A program without an operating system: the AVX-512 kernels as the product has them, and what
// replays them. simulate.py loads it into a simulated processor's memory, in 64-bit mode, and reads
// `hashes` when it halts.
#include "tests/machine_code/kernel_replay.h"

namespace baton::kernels::cpu {
namespace {
ReplayMemory memory;
}
}  // namespace baton::kernels::cpu

extern "C" {

std::uint64_t hashes[baton::kernels::cpu::kMostHashes];
std::uint64_t hash_count;

void* memcpy(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    __asm__ volatile("" ::: "memory");  // or the loop becomes a call of memcpy
  }
  return to;
}
void* memset(void* to, int value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    static_cast<char*>(to)[i] = static_cast<char>(value);
    __asm__ volatile("" ::: "memory");
  }
  return to;
}

void guest_main() {
  using namespace baton::kernels::cpu;  // NOLINT(google-build-using-namespace)
  hash_count = replay(*avx512_kernels(), memory, hashes);
}

// Lets AVX-512 state be used, as an operating system does.
[[gnu::naked]] void _start() {
  __asm__(
      "xor %ecx, %ecx\n"
      "xor %edx, %edx\n"
      "mov $0xe7, %eax\n"
      "xsetbv\n"
      "call guest_main\n"
      "hlt");
}

}  // extern "C"
