// Loads a model through the folder of packed weights: maps what an earlier start packed, or packs,
// writes it down for the next one, and maps that. One process of a machine packs while the others
// wait for it, so that all share one copy from the first start on.
//
//   FOLDER/<weights hash>-<layout>.bin   replaced by rename; used ones are touched, the least
//                                        recently used go when the folder outgrows its limit
//   FOLDER/lock                          held while packing
//
// Thread: one, while it loads. Failure: only `make`'s own. Whatever is wrong with folder or file is
// one note, and the weights are packed in memory of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/model/model.h"

namespace baton::engine {

// `make` loads the model by `backend`; it may be called up to three times.
using MakeRunner = std::function<Result<std::unique_ptr<ModelRunner>>()>;
Result<std::unique_ptr<ModelRunner>> through_packed_cache(std::uint64_t weights_hash,
                                                          kernels::Backend& backend,
                                                          const PackedCacheOptions& options,
                                                          const MakeRunner& make);

}  // namespace baton::engine
