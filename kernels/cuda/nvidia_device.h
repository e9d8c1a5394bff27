// A GPU through the CUDA runtime.
//
// Thread: as `Device`. Failure: opening gives Unavailable that names what is missing.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "kernels/cuda/device_memory.h"

namespace baton::kernels::cuda {

// `number`: as the driver counts.
Result<std::unique_ptr<Device>> open_device(std::uint32_t number);

}  // namespace baton::kernels::cuda
