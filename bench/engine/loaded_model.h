// A model ready to run with KV memory for a few sequences: what the engine benchmark and perplexity
// measure with, without node or scheduler.
//
// Owner: one measurement. Thread: the caller's. Failure: opening gives the engine's Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "engine/kv/arena.h"
#include "engine/model/model.h"

namespace baton::bench {

struct LoadOptions {
  std::string model;                 // path of a GGUF file
  std::string backend = "cpu";       // cpu, cuda or reference
  unsigned threads = 0;              // 0: all cores
  std::string float_path = "exact";  // of the cpu backend
  std::uint32_t step_tokens = 512;
  std::size_t sequences = 1;
  std::size_t tokens = 0;  // KV room of each sequence
  KvDType kv_dtype = KvDType::I16;
  bool record_steps = true;  // cuda: decode steps are repeated as graphs
  std::string packed_cache;  // folder of packed weights; empty: none
};

class LoadedModel {
 public:
  static Result<LoadedModel> load(const LoadOptions& options);

  const engine::ModelFile& file() const { return *file_; }
  engine::ModelRunner& runner() { return *runner_; }
  const KvArenaView& arena() const { return arena_->view(); }
  const kernels::Backend& backend() const { return *backend_; }
  const std::string& backend_description() const { return description_; }

  engine::SequenceSlice slice(std::size_t sequence,
                              std::span<const TokenId> tokens,
                              std::size_t first_position) const;
  // Copies the blocks of the first `tokens` tokens.
  void copy_context(std::size_t from, std::size_t to, std::size_t tokens);
  // Computes the KV of tokens from `first_position` on, in steps of at most step_tokens; with
  // `sampling`, samples after the last one.
  std::optional<engine::SampledToken> prefill(std::size_t sequence,
                                              std::span<const TokenId> tokens,
                                              std::size_t first_position,
                                              const SamplingParams* sampling);

 private:
  LoadedModel() = default;

  std::unique_ptr<const engine::ModelFile> file_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<engine::ModelRunner> runner_;
  std::optional<engine::KvArena> arena_;
  std::vector<std::vector<BlockId>> blocks_;  // of each sequence
  std::string description_;
  std::uint32_t step_tokens_ = 0;
};

}  // namespace baton::bench
