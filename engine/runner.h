// Runs a model: takes a plan of token slices, computes them in one forward pass over the paged KV
// arena, samples where asked. The same runner serves prefill, decode and the colocated mode.
//
// Owner: a node's composition root. Thread: the engine thread. Failure: loading gives an Error that
// names the file and place; `run` ends the process on an impossible plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_layout.h"
#include "common/types/request.h"
#include "common/types/token_event.h"

namespace baton::engine {

struct ModelInfo {
  std::string architecture;  // as the file names it: llama, gemma3, …
  std::uint32_t context_length = 0;
  std::uint32_t vocab_size = 0;
  KvLayout layout;
  std::uint64_t weights_hash = 0;
  std::uint64_t numerics_hash = 0;
  std::size_t weight_bytes = 0;  // memory the packed weights take
  // What a step costs at least: bytes of weights it reads once, and multiplications for each row
  // (through the layers) and each sampled row (through the output head).
  std::size_t step_weight_bytes = 0;
  std::uint64_t row_products = 0;
  std::uint64_t head_products = 0;
};

// Which tokens a grammar allows next. Made ready while the step computes.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Not ready, and not so soon that a step should wait for it: then nothing is sampled for its
  // slice, and the slice's last token comes again in a later step. On the engine thread, before
  // `allowed` without drafts.
  virtual bool is_late() { return false; }
  // The tokens allowed behind the sequence's output and `drafts`, each of which was allowed: bit
  // t % 32 of word t / 32; waits until it is ready. Empty: all of them. On the engine thread; the
  // words stay until the next call.
  virtual std::span<const std::uint32_t> allowed(std::span<const TokenId> drafts) = 0;
};

// New tokens of one sequence in one step.
struct SequenceSlice {
  std::span<const TokenId> tokens;   // never empty
  std::uint32_t first_position = 0;  // absolute position of tokens[0]
  std::span<const BlockId> blocks;   // covers [0, first_position + num_rows())
  // Others than this runner may have written its blocks below first_position: a sequence's first
  // step.
  bool arrived = false;
  // Sample the token that follows the last one; then the fields below are read.
  bool sample = false;
  const SamplingParams* sampling = nullptr;
  std::uint32_t choice = 0;
  std::span<const TokenId> prompt;  // for repetition_penalty
  std::span<const TokenId>
      output;  // tokens generated before; its size is the random key's position
  std::span<const TokenId>
      barred;                 // tokens that may not be sampled (stop tokens before min_tokens)
  TokenMask* mask = nullptr;  // of a grammar; null: none
  // Tokens whose log-probabilities are asked for, with so many alternatives: targets[i] follows
  // tokens[i]. Empty: none; else all of `tokens` have one but a last one that samples.
  std::span<const TokenId> targets;
  std::uint32_t target_alternatives = 0;
  // Guesses of what follows `tokens`, computed in the same step: while a sampled token equals its
  // draft, the token behind it is sampled too, as if the draft were the last of `output`. Empty
  // without `sample`. Keys and values behind the first wrong draft are of no use.
  std::span<const TokenId> drafts;
  // Guesses that a runner with a draft model may add itself, and whose text they go on: unlike any
  // other sequence's number on the node.
  std::uint32_t wanted_drafts = 0;
  std::uint64_t sequence = 0;

  std::size_t num_rows() const { return tokens.size() + drafts.size(); }
};

struct StepPlan {
  std::vector<SequenceSlice> slices;
};

struct SampledToken {
  TokenId token = 0;
  float logprob = 0.0F;           // of the token, natural log, before temperature and cuts
  std::vector<TokenLogprob> top;  // num_logprobs entries, best first
};

struct StepResult {
  // One for each slice; none too where its mask was late.
  std::vector<std::optional<SampledToken>> sampled;
  // What was sampled behind right drafts, in order: one list for each slice.
  std::vector<std::vector<SampledToken>> followed;
  std::vector<std::uint32_t> drafted;  // drafts of each slice
  // The targets of each slice with their log-probabilities; an empty list where none were asked
  // for.
  std::vector<std::vector<SampledToken>> scored;
};

// Called on the engine thread after a layer's keys and values of every slice are in the arena.
using LayerDone = std::function<void(std::uint32_t layer)>;

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const ModelInfo& info() const = 0;
  virtual StepResult run(const StepPlan& plan,
                         const KvArenaView& arena,
                         const LayerDone& layer_done) = 0;
  // Logits of every token of one slice, for perplexity and golden tests: [tokens][vocab_size].
  virtual std::vector<float> logits(const SequenceSlice& slice, const KvArenaView& arena) = 0;
};

}  // namespace baton::engine
