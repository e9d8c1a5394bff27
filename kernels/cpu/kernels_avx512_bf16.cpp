// AVX-512's kernels, with BF16 weights multiplied by AVX512-BF16.
#include "kernels/cpu/bfloat_dot.h"
#include "kernels/cpu/isa_avx512.h"
// The instruction set comes first.
#include "kernels/cpu/bfloat_matmul.h"

namespace baton::kernels::cpu {

const KernelTable* avx512_bf16_kernels() {
  static const KernelTable kTable =
      PairTable<Avx512, BfloatDot, avx512_kernels>::make("avx512-vnni avx512-bf16");
  return &kTable;
}

}  // namespace baton::kernels::cpu
