#include "kernels/cpu/kernel_choice.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/self_check.h"

namespace baton::kernels::cpu {
namespace {

// Null, or why AMX cannot be used.
const char* amx_obstacle(const MachineIsa& machine) {
  if (!machine.permit_tiles()) {
    return "the operating system refuses AMX registers (arch_prctl ARCH_REQ_XCOMP_PERM)";
  }
  return machine.amx_agrees() ? nullptr : "AMX computes other results here than AVX-512";
}

bool this_amx_agrees() {
  return equal_results(*amx_kernels(), *avx512_kernels());
}

KernelChoice choose_best(const MachineIsa& machine) {
  if (machine.avx512 && machine.amx_int8) {
    const char* obstacle = amx_obstacle(machine);
    return obstacle == nullptr ? KernelChoice{amx_kernels(), ""}
                               : KernelChoice{avx512_kernels(), obstacle};
  }
  return {machine.avx512 ? avx512_kernels() : machine.avx2 ? avx2_kernels() : scalar_kernels(), ""};
}

Result<KernelChoice> choose_amx(FloatPath float_path, const MachineIsa& machine) {
  const bool tiles = machine.avx512 && machine.amx_int8;
  if (float_path == FloatPath::AmxBf16 && (!tiles || !machine.amx_bf16)) {
    return fail(ErrorCode::InvalidConfig,
                std::string("this processor has no AMX-BF16; use float_path exact") +
                    (machine.avx512_bf16 ? " or avx512_bf16" : ""));
  }
  if (!tiles) {
    return fail(ErrorCode::InvalidConfig,
                "this processor has no AMX-INT8 with AVX-512; use isa auto or avx512");
  }
  if (const char* obstacle = amx_obstacle(machine); obstacle != nullptr) {
    return fail(ErrorCode::InvalidConfig,
                std::string(obstacle) + "; use isa auto and float_path exact");
  }
  return KernelChoice{float_path == FloatPath::AmxBf16 ? amx_bf16_kernels() : amx_kernels(), ""};
}

Result<KernelChoice> choose_avx512_bf16(const MachineIsa& machine) {
  if (!machine.avx512_bf16) {
    return fail(ErrorCode::InvalidConfig,
                std::string("this processor has no AVX512-BF16; use float_path exact") +
                    (machine.amx_int8 && machine.amx_bf16 ? " or amx_bf16" : ""));
  }
  return KernelChoice{avx512_bf16_kernels(), ""};
}

}  // namespace

MachineIsa this_machine() {
  return {.avx2 = has_avx2(),
          .avx512 = has_avx512(),
          .amx_int8 = has_amx_int8(),
          .amx_bf16 = has_amx_bf16(),
          .permit_tiles = permit_tiles,
          .amx_agrees = this_amx_agrees,
          .avx512_bf16 = has_avx512_bf16()};
}

Result<KernelChoice> choose_kernels(CpuIsa isa, FloatPath float_path, const MachineIsa& machine) {
  if (float_path == FloatPath::AmxBf16) {
    if (isa != CpuIsa::Auto && isa != CpuIsa::Amx) {
      return fail(ErrorCode::InvalidConfig, "float_path amx_bf16 needs isa auto or amx");
    }
    return choose_amx(float_path, machine);
  }
  if (float_path == FloatPath::Avx512Bf16) {
    if (isa != CpuIsa::Auto && isa != CpuIsa::Avx512) {
      return fail(ErrorCode::InvalidConfig, "float_path avx512_bf16 needs isa auto or avx512");
    }
    return choose_avx512_bf16(machine);
  }
  switch (isa) {
    case CpuIsa::Scalar:
      return KernelChoice{scalar_kernels(), ""};
    case CpuIsa::Avx2:
      if (!machine.avx2) {
        return fail(ErrorCode::InvalidConfig,
                    "this processor has no AVX2 with FMA and F16C; use isa auto or scalar");
      }
      return KernelChoice{avx2_kernels(), ""};
    case CpuIsa::Avx512:
      if (!machine.avx512) {
        return fail(ErrorCode::InvalidConfig,
                    "this processor has no AVX-512 with VNNI; use isa auto or avx2");
      }
      return KernelChoice{avx512_kernels(), ""};
    case CpuIsa::Amx:
      return choose_amx(float_path, machine);
    case CpuIsa::Auto:
      break;
  }
  return choose_best(machine);
}

}  // namespace baton::kernels::cpu
