// The AMX kernels over SIMDe and the model of the tiles.
#define BATON_OP [[gnu::noinline, gnu::optimize("O2")]] static
// clang-format off
#include "tests/support/simde_avx512.h"
// clang-format on
#include "kernels/cpu/isa_avx512.h"
// The instruction set comes first.
#include "kernels/cpu/amx_table.h"
#include "tests/support/emulated_kernels.h"
#include "tests/support/tile_model.h"

namespace baton::kernels::testing {
namespace {
using Table = cpu::AmxTable<cpu::Avx512, TileModel, emulated_avx512_kernels>;
}

const cpu::KernelTable* emulated_amx_kernels() {
  if (emulated_avx512_kernels() == nullptr) {
    return nullptr;
  }
  static const cpu::KernelTable kTable = Table::make("amx-int8 emulated", false);
  return &kTable;
}

const cpu::KernelTable* emulated_amx_bf16_kernels() {
  if (emulated_avx512_kernels() == nullptr) {
    return nullptr;
  }
  static const cpu::KernelTable kTable = Table::make("amx-bf16 emulated", true);
  return &kTable;
}

}  // namespace baton::kernels::testing
