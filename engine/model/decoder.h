// The forward pass of every family: pre-norm blocks of grouped-query attention with rotary
// embedding and a gated feed-forward, and the head. What a model has of the rest is in its
// DecoderSpec.
//
// Several ranks may compute it together: each has a Decoder of its own share, and all make the same
// calls.
//
// Owner: one decoder team. Thread: the rank's. Failure: construction throws bad_alloc; the rest
// ends the process on an impossible plan.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/model/decoder_spec.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/experts.h"
#include "engine/model/parts.h"
#include "engine/parallel/communicator.h"
#include "engine/runner.h"
#include "kernels/hadamard.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace baton::engine {

class Decoder {
 public:
  // `max_rows`: of a step. `max_head_rows`: of one call of `head`.
  Decoder(kernels::Backend& backend,
          Communicator& ranks,
          DecoderSpec spec,
          const RankShare& share,
          DecoderWeights weights,
          std::size_t max_rows,
          std::size_t max_head_rows);

  const DecoderSpec& spec() const { return spec_; }
  const DecoderWeights& weights() const { return weights_; }
  kernels::Backend& backend() { return backend_; }
  // The backend's, with this rank's heads.
  Status adopt_arena(const KvArenaView& arena) {
    return backend_.adopt_arena(arena, {share_.kv_heads.first, share_.kv_heads.count});
  }

  // From token ids to the hidden states of the wanted rows before the final norm: [wanted][dim] in
  // the backend's memory, valid until the next call. The ranks write one arena; rank 0 calls
  // `layer_done`.
  const float* run(const StepRows& rows, const KvArenaView& arena, const LayerDone& layer_done);

  // Final norm and logits. hidden: [count][dim]. Rank 0 gives the logits, [count][vocab], in the
  // backend's memory: `out` where that is the host's, else valid until the next call. Null: other
  // ranks.
  float* head(const float* hidden, std::size_t count, float* out);

 private:
  // Rows of a step and where the next operation reads and writes them.
  struct Step {
    const StepRows& rows;
    const KvArenaView& arena;
    const LayerDone& layer_done;
    std::size_t m;  // rows still computed
    std::span<const kernels::AttentionSlice> slices;
    bool is_repeatable;  // what follows may be done again for another step
  };

  std::size_t repeatable_rows(const StepRows& rows, const LayerDone& layer_done) const;
  kernels::StepInputs inputs_of(const Step& step);
  void compute(Step& step);
  void embed(std::span<const TokenId> ids);
  bool attention_block(std::uint32_t layer, Step& step);
  void attend(kernels::AttentionParams params, const Step& step);
  void feed_forward_block(std::uint32_t layer, const Step& step);
  void norm_and_turn(float* heads,
                     std::size_t count,
                     const FloatVector& norm,
                     const LayerSpec& layer,
                     const Step& step);
  // One piece of what a projection sums over: its weights and its input, [m][cols].
  struct Piece {
    const kernels::PackedMatrix* weight;
    const float* input;
  };
  void project(std::span<const Piece> pieces,
               const PartialSums& sums,
               std::size_t m,
               const FloatVector& post_norm);
  void add_to_stream(float* block, std::size_t m, const FloatVector& post_norm);
  void publish(std::uint32_t layer, const Step& step);
  void finish_layer(std::uint32_t layer, const Step& step);

  // Keys and values of eight bits are stored spread over their dimensions by a Hadamard matrix:
  // rounding then costs a fifth of what it does otherwise (docs/performance/engine.md). Queries
  // follow, so that scores stay as they are; what attention gives is turned back.
  static bool is_spread(const Step& step) { return step.arena.layout.dtype == KvDType::I8; }
  // What the matrix twice makes larger: a power of two, so that nothing is rounded.
  float spread_factor() const {
    return 1.0F / static_cast<float>(kernels::hadamard_size(spec_.head_dim));
  }

  std::size_t q_dim() const { return std::size_t{share_.heads.count} * spec_.head_dim; }
  std::size_t kv_dim() const { return std::size_t{share_.kv_heads.count} * spec_.head_dim; }

  kernels::Backend& backend_;
  Communicator& ranks_;
  const DecoderSpec spec_;
  const RankShare share_;
  const DecoderWeights weights_;
  const std::size_t max_rows_;
  const std::unique_ptr<kernels::StepRecords> records_;  // null: every step runs as it is
  std::vector<RopeAngles> ropes_;
  // Of this step: what its operations take from here, and layers that are done.
  std::vector<TokenId> ids_;
  std::vector<kernels::RopeTable> angles_;  // one a rope
  std::vector<kernels::StepInputs::Attention> attentions_;
  std::uint32_t layers_done_ = 0;
  // Activations, [max_rows][…].
  FloatBuffer x_;  // the residual stream
  FloatBuffer h_;  // a block's input, then its output
  FloatBuffer q_, k_, v_, attended_, gate_, up_;
  ExpertMixer experts_;
  FloatBuffer normed_;         // [max_head_rows][dim]
  FloatBuffer device_logits_;  // [max_head_rows][vocab] where the backend's memory is a device's
  // With several ranks: every rank's part of what all need.
  FloatBuffer partials_;                  // [pieces][m][dim]
  FloatBuffer embedded_;                  // [max_rows][dim], by rank
  FloatBuffer vocab_logits_;              // [ranks][max_head_rows][own vocab]
  std::vector<Piece> pieces_;             // of the projection at hand
  std::vector<kernels::MatmulOut> outs_;  // of the feed-forward at hand
};

}  // namespace baton::engine
