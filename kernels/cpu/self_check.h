// Compares two kernel tables by a few small products and attention, bit for bit: whether AMX, which
// hypervisors and firmware can get wrong and few machines of developers have, computes here what
// AVX-512 does.
//
// Thread: any; the machine has both tables' instructions. Failure: none.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::kernels::cpu {

bool equal_results(const KernelTable& a, const KernelTable& b);

}  // namespace baton::kernels::cpu
