// The kernels built for AVX2, FMA and F16C.
#include "kernels/cpu/isa_avx2.h"
#include "kernels/cpu/make_table.h"

namespace baton::kernels::cpu {
namespace {
constexpr KernelTable kTable = make_table<Avx2>();
}

const KernelTable* avx2_kernels() {
  return &kTable;
}

}  // namespace baton::kernels::cpu
