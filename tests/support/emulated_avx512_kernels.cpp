// The AVX-512 kernels over SIMDe. Out of line, or the compiler takes many minutes over them.
#define BATON_OP [[gnu::noinline, gnu::optimize("O2")]] static
// clang-format off
#include "tests/support/simde_avx512.h"
// clang-format on
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/isa_avx512.h"
#include "kernels/cpu/make_table.h"
#include "tests/support/emulated_kernels.h"

namespace baton::kernels {
namespace cpu {
namespace {

constexpr KernelTable make_emulated() {
  KernelTable table = make_table<Avx512>();
  table.name = "avx512-vnni emulated";
  return table;
}
constexpr KernelTable kEmulated = make_emulated();

}  // namespace
}  // namespace cpu

const cpu::KernelTable* testing::emulated_avx512_kernels() {
  return cpu::has_avx2() ? &cpu::kEmulated : nullptr;
}

}  // namespace baton::kernels
