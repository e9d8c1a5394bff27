// The fast backend over a given kernel table. `make_cpu_backend` (kernels/ops.h) chooses the table
// by machine and configuration; tests pass tables of their own.
//
// Thread: as `Backend`. Failure: Unavailable when the threads cannot be started.
#pragma once

#include <memory>
#include <string>

#include "common/base/error.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

// `kernels` outlives the backend; options' isa and float_path are not looked at. `note`: for the
// description.
Result<std::unique_ptr<Backend>> make_backend(const KernelTable& kernels,
                                              const CpuOptions& options,
                                              std::string note = {});

}  // namespace baton::kernels::cpu
