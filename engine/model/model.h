// Makes a runner from a model file and a backend.
//
// Thread: one. Failure: an unknown architecture or a missing tensor gives InvalidModel that names
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/model_file.h"
#include "engine/runner.h"
#include "kernels/ops.h"

namespace baton::engine {

// Where packed weights are kept from start to start (packed_cache.h).
struct PackedCacheOptions {
  std::string folder;                                   // empty: nowhere
  std::uint64_t limit_bytes = std::uint64_t{16} << 30;  // of all files in it; the oldest go
  std::function<void(std::string_view)> note;           // what went wrong; may be empty
  std::function<void(std::string_view)> progress;       // of packing that takes long; may be empty
};

struct RunnerOptions {
  std::uint32_t block_tokens = 32;
  std::uint32_t max_context = 0;         // 0: the model's own
  std::uint32_t max_step_tokens = 2048;  // rows a step may have; sizes the activation buffers
  KvDType kv_dtype = KvDType::I16;
  // Pieces that the sums of attention output and down projections are made of: 1, or 4, which gives
  // the same bits on 1, 2 and 4 ranks.
  std::uint32_t partial_sums = 1;
  // A device's memory for this arena is taken before that for the weights, and too little of it is
  // an error; other arenas are taken at their first step.
  std::optional<KvArenaView> arena{};
  PackedCacheOptions packed_cache{};
};

// The layout of a model's KV, known before weights are packed.
Result<KvLayout> kv_layout_of(const ModelFile& file,
                              std::uint32_t block_tokens,
                              KvDType dtype = KvDType::I16);

// `backend` outlives the runner; `file` may be closed afterwards only if no backend borrows from
// it: keep it.
Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 kernels::Backend& backend,
                                                 const RunnerOptions& options);
// Tensor parallel: one backend a rank, of one kind, each with threads of its own.
Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 std::span<kernels::Backend* const> backends,
                                                 const RunnerOptions& options);

}  // namespace baton::engine
