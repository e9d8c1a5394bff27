// A model of the AMX tile registers, bit for bit, after the instructions' published definitions:
// LDTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILESTORED, TDPB[SU][SU]D and TDPBF16PS. What the
// processor would fault for is refused with a sentence.
//
// Thread: one. Failure: a sentence, null when all is well; the state is then as before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cpu/tile_config.h"

namespace baton::kernels::testing {

class TileMachine {
 public:
  const char* configure(const cpu::TileConfig& config);
  void release() { *this = TileMachine(); }
  const char* zero(int tile);
  const char* load(int tile, const void* p, std::size_t stride);
  const char* store(int tile, void* p, std::size_t stride) const;
  // to += a * b in 32-bit integers that wrap.
  const char* multiply_bytes(int to, int a, int b, bool a_signed, bool b_signed);
  const char* multiply_bfloats(int to, int a, int b);

  // All 64 bytes of a row, those beyond its configured ones too.
  const std::uint8_t* row(int tile, int row) const { return tiles_[tile].data[row]; }

 private:
  struct Tile {
    int rows = 0;
    int row_bytes = 0;
    std::uint8_t data[16][64] = {};
  };
  const char* check(int tile) const;
  const char* check_product(int to, int a, int b) const;

  bool configured_ = false;
  Tile tiles_[8];
};

// Arithmetic of TDPBF16PS: rounded to nearest even, denormals are zeros in and out.
float tile_fma(float a, float b, float c);
float tile_add(float a, float b);

// What kernels take in place of cpu::AmxTile; ends the process at a fault.
class TileModel {
 public:
  explicit TileModel(const cpu::TileConfig& config) { configure(config); }
  void configure(const cpu::TileConfig& config) { expect(machine_.configure(config)); }
  template <int kTile>
  void zero() {
    expect(machine_.zero(kTile));
  }
  template <int kTile>
  void load(const void* p, std::size_t stride) {
    expect(machine_.load(kTile, p, stride));
  }
  template <int kTile>
  void store(void* p, std::size_t stride) {
    expect(machine_.store(kTile, p, stride));
  }
  template <int kTo, int kA, int kB, bool kASigned, bool kBSigned>
  void multiply_bytes() {
    expect(machine_.multiply_bytes(kTo, kA, kB, kASigned, kBSigned));
  }
  template <int kTo, int kA, int kB>
  void multiply_bfloats() {
    expect(machine_.multiply_bfloats(kTo, kA, kB));
  }

 private:
  static void expect(const char* fault) { BATON_CHECK(fault == nullptr, fault); }
  TileMachine machine_;
};

}  // namespace baton::kernels::testing
