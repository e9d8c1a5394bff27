// Which part of a model each of several ranks computes.
//
// Thread: pure. Failure: InvalidConfig that says what cannot be cut.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/error.h"
#include "engine/model/decoder_spec.h"
#include "engine/model/model_file.h"

namespace baton::engine {

// The shares of `ranks` ranks (1, 2 or 4) of a model whose projections are summed over
// `partial_sums` pieces: 1, which takes one rank, or kVirtualShards, which gives the same bits for
// every number of ranks.
Result<std::vector<RankShare>> rank_shares(const ModelFile& file,
                                           const DecoderSpec& spec,
                                           std::uint32_t vocab,
                                           std::uint32_t partial_sums,
                                           std::uint32_t ranks);

}  // namespace baton::engine
