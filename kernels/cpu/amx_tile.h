// The tile registers of this thread, configured while the object lives. The kernels take it as a
// parameter: tests put a model of the instructions in its place.
//
// Written as assembler: GCC 12's intrinsics do not tell the compiler that tile loads and stores
// touch memory, and take no template parameter for a tile's number.
//
// Only kernels_amx.cpp includes this. Thread: one; tile state is the thread's own. Failure: the
// process ends on a machine without AMX, or before amx_permitted() (cpu_features.h).
#pragma once

#include <cstddef>

#include "kernels/cpu/tile_config.h"

namespace baton::kernels::cpu {
namespace {

class AmxTile {
 public:
  explicit AmxTile(const TileConfig& config) { configure(config); }
  AmxTile(const AmxTile&) = delete;
  AmxTile& operator=(const AmxTile&) = delete;
  ~AmxTile() { __asm__ volatile("tilerelease" ::: "memory"); }

  // Zeroes all registers.
  void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  [[gnu::always_inline]] void load(const void* p, std::size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void store(void* p, std::size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // kTo += kA * kB, bytes with or without a sign.
  template <int kTo, int kA, int kB, bool kASigned, bool kBSigned>
  [[gnu::always_inline]] void multiply_bytes() {
    if constexpr (kASigned && kBSigned) {
      __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kA), "i"(kB));
    } else if constexpr (kASigned) {
      __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kA), "i"(kB));
    } else if constexpr (kBSigned) {
      __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kA), "i"(kB));
    } else {
      __asm__ volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kA), "i"(kB));
    }
  }
  // kTo += kA * kB, pairs of bfloat16.
  template <int kTo, int kA, int kB>
  [[gnu::always_inline]] void multiply_bfloats() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
