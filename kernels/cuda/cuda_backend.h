// The backend of a GPU: it packs weights on the host and keeps them on the device, and turns each
// operation into launches on the device's stream. What a step's operations take from the host's
// memory (ids, angles, block tables, plans of attention) is copied in at once when it begins
// (step_image.h); decode steps are recorded and repeated (step_recorder.h).
//
// A KV arena stays in the host's memory, where the data plane fills and reads it without knowing of
// devices. The device has a copy: what a step writes is copied out layer by layer beside the work
// (publish_kv), what comes from elsewhere is copied in when a sequence begins (bring_blocks).
//
// Thread: as `Backend`. Failure: packing gives OutOfMemory; a device that fails ends the process
// (device_memory.h).
#pragma once

#include <memory>

#include "common/base/error.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/nccl_ranks.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

// `threads`: that pack weights. `rank`: of this backend among those that share a model out; null:
// it is alone. `record_steps`: make_step_records gives any.
Result<std::unique_ptr<Backend>> make_backend(std::unique_ptr<Device> device,
                                              unsigned threads,
                                              std::unique_ptr<NcclRank> rank = nullptr,
                                              bool record_steps = true);

}  // namespace baton::kernels::cuda
