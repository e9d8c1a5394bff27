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
#include "kernels/ops.h"

namespace baton::engine {

// What a model lacks is null or empty. q_dim, kv_dim and ffn: of one rank's share.
struct LayerWeights {
  using Matrix = std::unique_ptr<kernels::PackedMatrix>;
  std::vector<float> attn_norm;       // [dim]
  Matrix q, k, v;                     // [q_dim | kv_dim][dim]
  std::vector<float> q_norm, k_norm;  // [head_dim]
  Matrix o;                           // [dim][q_dim]
  std::vector<float> post_attn_norm;  // [dim]
  std::vector<float> ffn_norm;        // [dim]
  Matrix gate, up;                    // [ffn][dim]
  Matrix down;                        // [dim][ffn]
  std::vector<float> post_ffn_norm;   // [dim]
};

struct DecoderWeights {
  std::unique_ptr<kernels::PackedMatrix> embedding;  // [vocab][dim], also the head when tied
  std::unique_ptr<kernels::PackedMatrix> output;     // null when tied
  std::vector<float> output_norm;                    // [dim]
  std::vector<LayerWeights> layers;
  std::size_t bytes = 0;             // memory all of them take
  std::uint64_t layer_products = 0;  // multiplications a row of the layers takes

  const kernels::PackedMatrix& head() const { return output != nullptr ? *output : *embedding; }
  std::uint32_t vocab() const { return static_cast<std::uint32_t>(embedding->rows()); }
};

Result<DecoderWeights> load_decoder_weights(const ModelFile& file,
                                            const DecoderSpec& spec,
                                            const RankShare& share,
                                            kernels::Backend& backend);

}  // namespace baton::engine
