// The kernels for AMX-INT8, and for AMX-BF16 on request, on top of AVX-512's.
#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/isa_avx512.h"
// The instruction set comes first.
#include "kernels/cpu/amx_table.h"

namespace baton::kernels::cpu {
namespace {
using Table = AmxTable<Avx512, AmxTile, avx512_kernels>;
}

const KernelTable* amx_kernels() {
  static const KernelTable kTable = Table::make("amx-int8", false);
  return &kTable;
}

const KernelTable* amx_bf16_kernels() {
  static const KernelTable kTable = Table::make("amx-int8 amx-bf16", true);
  return &kTable;
}

}  // namespace baton::kernels::cpu
