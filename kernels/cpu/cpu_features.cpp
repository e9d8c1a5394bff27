#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace baton::kernels::cpu {
namespace {

struct Leaf {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(std::uint32_t leaf, std::uint32_t part = 0) {
  Leaf out;
  if (__get_cpuid_count(leaf, part, &out.a, &out.b, &out.c, &out.d) == 0) {
    return {};
  }
  return out;
}

bool bit(std::uint32_t word, unsigned i) {
  return ((word >> i) & 1U) != 0;
}

// Register state that the operating system saves: XCR0, 0 when it says nothing.
std::uint64_t saved_state() {
  if (!bit(cpuid(1).c, 27)) {  // OSXSAVE
    return 0;
  }
  std::uint32_t low;
  std::uint32_t high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

bool has_saved_tiles() {
  constexpr std::uint64_t kTiles = 0x60000;
  return (saved_state() & kTiles) == kTiles;
}

}  // namespace

bool has_avx2() {
  constexpr std::uint64_t kYmm = 0x6;
  const Leaf one = cpuid(1);
  return (saved_state() & kYmm) == kYmm && bit(one.c, 12) && bit(one.c, 29) && bit(cpuid(7).b, 5);
}

bool has_avx512() {
  constexpr std::uint64_t kZmm = 0xE6;
  const Leaf seven = cpuid(7);
  return has_avx2() && (saved_state() & kZmm) == kZmm && bit(seven.b, 16) && bit(seven.b, 17) &&
         bit(seven.b, 30) && bit(seven.b, 31) && bit(seven.c, 11);
}

bool has_amx_int8() {
  const Leaf seven = cpuid(7);
  return has_saved_tiles() && bit(seven.d, 24) && bit(seven.d, 25);
}

bool has_amx_bf16() {
  const Leaf seven = cpuid(7);
  return has_saved_tiles() && bit(seven.d, 24) && bit(seven.d, 22);
}

bool has_avx512_bf16() {
  return has_avx512() && cpuid(7).a >= 1 && bit(cpuid(7, 1).a, 5);
}

bool permit_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which glibc's headers lack
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace baton::kernels::cpu
