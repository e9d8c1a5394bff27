// The AVX512-BF16 kernels over SIMDe and the model of the instructions.
#define BATON_OP [[gnu::noinline, gnu::optimize("O2")]] static
// clang-format off
#include "tests/support/simde_avx512.h"
// clang-format on
#include "kernels/cpu/isa_avx512.h"
// The instruction set comes first.
#include "kernels/cpu/bfloat_matmul.h"
#include "tests/support/dot_model.h"
#include "tests/support/emulated_kernels.h"

namespace baton::kernels::testing {
namespace {
template <bool kOddFirst>
using Table = cpu::PairTable<cpu::Avx512, DotModel<kOddFirst>, emulated_avx512_kernels>;
}

const cpu::KernelTable* emulated_avx512_bf16_kernels() {
  if (emulated_avx512_kernels() == nullptr) {
    return nullptr;
  }
  static const cpu::KernelTable kTable = Table<true>::make("avx512-bf16 emulated");
  return &kTable;
}

const cpu::KernelTable* even_first_bf16_kernels() {
  if (emulated_avx512_kernels() == nullptr) {
    return nullptr;
  }
  static const cpu::KernelTable kTable = Table<false>::make("avx512-bf16 even first");
  return &kTable;
}

}  // namespace baton::kernels::testing
