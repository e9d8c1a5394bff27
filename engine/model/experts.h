// The feed-forward of a layer with experts: a router sends each row to a few of them, each expert
// multiplies its rows together, and a row's results are added in the order of their rank. So a
// row's bits depend on that row alone, whatever company it has at an expert.
//
// Owner: one Decoder. Thread: the engine thread. Failure: construction throws bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/decoder_spec.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/parts.h"
#include "kernels/ops.h"

namespace baton::engine {

class ExpertMixer {
 public:
  // Of no use, and without memory, when the model has no experts.
  ExpertMixer(kernels::Backend& backend,
              const DecoderSpec& spec,
              const RankShare& share,
              std::size_t max_rows);

  // x: [m][dim], replaced by the experts' output.
  void run(const LayerWeights& weights, float* x, std::size_t m);

 private:
  void group(std::size_t m);

  kernels::Backend& backend_;
  const ExpertSpec spec_;
  const GateFunction gate_function_;
  const std::size_t dim_;
  const std::size_t ffn_;
  // [max_rows * used], by row and rank: expert, weight, and the place of its result.
  std::vector<std::uint32_t> experts_;
  std::vector<float> weights_;
  std::vector<std::uint32_t> places_;
  std::vector<std::uint32_t> rows_;    // of each place
  std::vector<std::uint32_t> firsts_;  // first place of each expert, and the end: [count + 1]
  // By place: [max_rows * used][…].
  FloatBuffer logits_;  // [max_rows][count]
  FloatBuffer inputs_;  // … and, once multiplied, outputs
  FloatBuffer gate_, up_;
};

// silu or gelu of `gate` times `up`, into `gate`. [m][dim]
void apply_gate(kernels::Backend& backend,
                GateFunction function,
                float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim);

}  // namespace baton::engine
