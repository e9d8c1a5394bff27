// Which kernel table a configuration means on a machine.
//
// Thread: pure, but for asking the operating system for tile registers. Failure: InvalidConfig with
// what to set instead.
#pragma once

#include <string>

#include "common/base/error.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

// What a machine has. `permit_tiles` asks its operating system for AMX registers and `amx_agrees`
// whether they compute what AVX-512 does; they are called, in this order, only when AMX is there
// and wanted.
struct MachineIsa {
  bool avx2 = false;
  bool avx512 = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool (*permit_tiles)() = nullptr;
  bool (*amx_agrees)() = nullptr;
  bool avx512_bf16 = false;  // and AVX-512
};
MachineIsa this_machine();

struct KernelChoice {
  const KernelTable* kernels = nullptr;
  std::string note;  // what `auto` had to do without, and why; else empty
};
Result<KernelChoice> choose_kernels(CpuIsa isa, FloatPath float_path, const MachineIsa& machine);

}  // namespace baton::kernels::cpu
