// A decoder's weights, packed for a backend, and how they are taken from a model file.
//
// Owner: one Decoder. Thread: one while loading, const after. Failure: InvalidModel that names the
// tensor; OutOfMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "engine/model/decoder_spec.h"
#include "engine/model/model_file.h"
#include "engine/model/parts.h"
#include "kernels/ops.h"

namespace baton::engine {

using MatrixPtr = std::unique_ptr<kernels::PackedMatrix>;

// A gated feed-forward: a piece of the layer's own or one expert. ffn: of that piece or expert.
struct FeedForwardWeights {
  MatrixPtr gate, up;  // [ffn][dim]
  MatrixPtr down;      // [dim][ffn]
};

// What a model lacks is null or empty. q_dim, kv_dim: of one rank's share.
struct LayerWeights {
  FloatVector attn_norm;                // [dim]
  MatrixPtr q, k, v;                    // [q_dim | kv_dim][dim]
  FloatVector q_bias, k_bias, v_bias;   // [q_dim | kv_dim]
  FloatVector q_norm, k_norm;           // [head_dim]
  std::vector<MatrixPtr> o;             // [dim][q_dim of a piece], one a piece
  FloatVector o_bias;                   // [dim]
  FloatVector post_attn_norm;           // [dim]
  FloatVector ffn_norm;                 // [dim]
  std::vector<FeedForwardWeights> ffn;  // one a piece; none where there are experts
  MatrixPtr router;                     // [experts][dim]
  std::vector<FeedForwardWeights> experts;
  FloatVector post_ffn_norm;  // [dim]
};

struct DecoderWeights {
  MatrixPtr embedding;      // [own vocab][dim], also the head when tied
  MatrixPtr output;         // null when tied
  FloatVector output_norm;  // [dim]
  std::vector<LayerWeights> layers;
  std::size_t bytes = 0;              // memory all of them take
  std::size_t idle_expert_bytes = 0;  // of those, experts that a step of one row leaves alone
  std::uint64_t layer_products = 0;   // multiplications that a row takes in the layers

  const kernels::PackedMatrix& head() const { return output != nullptr ? *output : *embedding; }
};

Result<DecoderWeights> load_decoder_weights(const ModelFile& file,
                                            const DecoderSpec& spec,
                                            const RankShare& share,
                                            kernels::Backend& backend);

}  // namespace baton::engine
