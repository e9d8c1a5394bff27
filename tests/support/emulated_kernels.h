// Kernel tables of instruction sets that the machine lacks, emulated: the same source as the real
// tables, so that their arithmetic and memory accesses are tested everywhere.
//
// Thread: as the real tables. Failure: null where the machine lacks AVX2.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::kernels::testing {

const cpu::KernelTable* emulated_avx512_kernels();
const cpu::KernelTable* emulated_amx_kernels();
const cpu::KernelTable* emulated_amx_bf16_kernels();

}  // namespace baton::kernels::testing
