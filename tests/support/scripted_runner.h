// A model for tests without weights: it writes each token's id and position into the KV arena, in
// every layer, and its next token is a hash of what it reads back from there. So a block that was
// not computed, not moved, moved to the wrong place or handed out too early gives other tokens,
// just as with a real model, and equal histories give equal tokens.
//
// Owner: a test. Thread: the engine thread. Failure: as ModelRunner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/runner.h"

namespace baton::testing {

struct ScriptedOptions {
  std::uint32_t layers = 3;
  std::uint32_t block_tokens = 16;
  KvOrder order = KvOrder::KeysByDimValuesByToken;  // neither it nor block_tokens changes a token
  std::uint32_t context_length = 4096;
  std::uint32_t vocab_size = 1000;
  std::uint64_t weights_seed = 1;  // another seed is another model
  // Above 0 the model repeats itself: seven tokens of eight follow from the one before alone, out
  // of so many.
  std::uint32_t habits = 0;
  std::function<void()> before_step;                        // on the engine thread
  std::function<void(std::uint32_t)> before_layer;          // the same
  std::function<void(const engine::StepPlan&)> check_plan;  // the same, before the first layer
};

class ScriptedRunner final : public engine::ModelRunner {
 public:
  explicit ScriptedRunner(ScriptedOptions options);

  const engine::ModelInfo& info() const override { return info_; }
  engine::StepResult run(const engine::StepPlan& plan,
                         const KvArenaView& arena,
                         const engine::LayerDone& layer_done) override;
  std::vector<float> logits(const engine::SequenceSlice& slice, const KvArenaView& arena) override;

  // What it was asked to do, readable from any thread.
  std::uint64_t num_steps() const { return num_steps_; }
  std::uint64_t num_tokens() const { return num_tokens_; }  // drafts not counted
  std::uint64_t num_drafts() const { return num_drafts_; }
  std::uint32_t max_slices() const { return max_slices_; }

 private:
  std::uint64_t history_hash(const engine::SequenceSlice& slice,
                             const KvArenaView& arena,
                             std::uint32_t length) const;
  // The token behind the first `drafts` of a slice's drafts.
  engine::SampledToken sample(const engine::SequenceSlice& slice,
                              std::size_t drafts,
                              const KvArenaView& arena) const;

  const ScriptedOptions options_;
  engine::ModelInfo info_;
  std::atomic<std::uint64_t> num_steps_ = 0;
  std::atomic<std::uint64_t> num_tokens_ = 0;
  std::atomic<std::uint64_t> num_drafts_ = 0;
  std::atomic<std::uint32_t> max_slices_ = 0;
};

// The tokens a request gives on this model, computed alone and without any cache.
std::vector<TokenId> scripted_output(const ScriptedOptions& options,
                                     const GenerateRequest& request);

}  // namespace baton::testing
