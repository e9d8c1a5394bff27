// The kernels built for AVX-512 F, BW, VL, DQ and VNNI.
#include "kernels/cpu/isa_avx512.h"
#include "kernels/cpu/make_table.h"

namespace baton::kernels::cpu {
namespace {
constexpr KernelTable kTable = make_table<Avx512>();
}

const KernelTable* avx512_kernels() {
  return &kTable;
}

}  // namespace baton::kernels::cpu
