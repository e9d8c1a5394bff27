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
const cpu::KernelTable* emulated_avx512_bf16_kernels();
// As the last one on a processor whose VDPBF16PS takes a pair's even elements first.
const cpu::KernelTable* even_first_bf16_kernels();

}  // namespace baton::kernels::testing
