// Makes a runner from a model file and a backend.
//
// Thread: one. Failure: an unknown architecture or a missing tensor gives InvalidModel that names
// it.
#pragma once

#include <memory>
#include <string>

#include "engine/model/model_file.h"
#include "engine/runner.h"
#include "kernels/ops.h"

namespace baton::engine {

struct RunnerOptions {
  std::uint32_t block_tokens = 32;
  std::uint32_t max_context = 0;         // 0: the model's own
  std::uint32_t max_step_tokens = 2048;  // rows a step may have; sizes the activation buffers
};

// The layout of a model's KV, known before weights are packed.
Result<KvLayout> kv_layout_of(const ModelFile& file, std::uint32_t block_tokens);

// `backend` outlives the runner; `file` may be closed afterwards only if no backend borrows from
// it: keep it.
Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 kernels::Backend& backend,
                                                 const RunnerOptions& options);

}  // namespace baton::engine
