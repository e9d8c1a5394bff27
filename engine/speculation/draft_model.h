// Guesses by a second, smaller model with the same vocabulary. It keeps keys and values of its own
// for each sequence that asks, and throws those of the longest unused sequence away when its memory
// is short. A sequence that it does not know yet, or not up to its end, is read in chunks, one a
// call, and gets no guess until that is done.
//
// It samples as the sequence itself does, with the same random numbers: where the two models agree
// on a distribution, they mostly agree on the token.
//
// Owner: SpeculativeRunner. Thread: the engine thread. Failure: none; no guess is always right.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/kv_memory.h"
#include "engine/runner.h"

namespace baton::engine {

class DraftModel {
 public:
  // New tokens of a sequence whose last guess was right to its end: such a few are no chunk.
  static constexpr std::uint32_t kSteady = 2;

  // `chunk_tokens`: most tokens of all sequences that it reads in one call. `runner` takes steps of
  // these and kSteady rows a sequence.
  DraftModel(ModelRunner& runner, std::unique_ptr<KvMemory> kv, std::uint32_t chunk_tokens);

  // Up to `wanted_drafts` tokens for each slice that asks; one list a slice.
  std::vector<std::vector<TokenId>> guess(const StepPlan& plan);
  std::size_t num_sequences() const { return known_.size(); }

 private:
  struct Known {
    std::vector<BlockLease> leases;
    std::vector<BlockId> blocks;
    std::vector<TokenId> tokens;  // whose keys and values are stored
    std::uint64_t last_call = 0;
  };
  // A slice in this call.
  struct Asking {
    std::size_t slice = 0;
    Known* known = nullptr;
    SamplingParams sampling;    // without log-probabilities
    std::vector<TokenId> text;  // prompt, output, and what was guessed
    std::size_t prompt = 0;     // tokens of it that are the prompt
    std::uint32_t wanted = 0;
    std::uint32_t guessed = 0;
    bool is_ready = false;  // read to its end
  };

  bool reserve(Known& known, std::size_t tokens);
  std::vector<Asking> take(const StepPlan& plan);
  // Reads what is new of each text; the first guess comes of it.
  void read(std::vector<Asking>& asking, const StepPlan& plan);
  // One more guess of each that wants it. False: none does.
  bool extend(std::vector<Asking>& asking, const StepPlan& plan);
  SequenceSlice slice_of(const Asking& asking, const SequenceSlice& slice, std::size_t count) const;

  ModelRunner& runner_;
  const std::unique_ptr<KvMemory> kv_;
  const std::uint32_t chunk_tokens_;
  std::map<std::uint64_t, Known> known_;  // by sequence
  std::uint64_t num_calls_ = 0;
};

// The model that answers, with a draft model beside it: fills in the drafts that slices want.
//
// Owner: a node's host. Thread and failure: as ModelRunner.
class SpeculativeRunner final : public ModelRunner {
 public:
  SpeculativeRunner(ModelRunner& target, DraftModel& draft) : target_(target), draft_(draft) {}

  const ModelInfo& info() const override { return target_.info(); }
  StepResult run(const StepPlan& plan,
                 const KvArenaView& arena,
                 const LayerDone& layer_done) override;
  std::vector<float> logits(const SequenceSlice& slice, const KvArenaView& arena) override {
    return target_.logits(slice, arena);
  }

 private:
  ModelRunner& target_;
  DraftModel& draft_;
};

}  // namespace baton::engine
