// Chooses the next token from a row of logits: bias, penalties over the history, the grammar's
// mask, temperature, top_k, top_p, min_p, then a draw keyed by (seed, choice, position).
// Temperature 0 is argmax, the lowest id winning a tie. The result depends on the row and the
// request alone.
//
// Cuts apply in this order: top_k keeps the k best; top_p the fewest of those whose share of their
// mass reaches p; min_p drops what is less likely than min_p times the best. The best always stays.
//
// Owner: a model runner. Thread: the engine thread; buffers are reused from call to call.
// Failure: none; parameters are validated at admission.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/types/request.h"
#include "engine/runner.h"

namespace baton::engine {

class Sampler {
 public:
  explicit Sampler(std::size_t vocab_size);

  // `logits`: [vocab_size], overwritten. Reads the slice's sampling, choice, prompt, output and
  // barred; `logprob` and `top` are filled when num_logprobs >= 0, from the logits as given.
  // The first `drafts` of the slice's drafts count as the end of its output.
  SampledToken sample(std::span<float> logits, const SequenceSlice& slice, std::size_t drafts = 0);

  // The log-probability of a known token, natural log, and of the `alternatives` best.
  SampledToken score(std::span<const float> logits, TokenId token, std::uint32_t alternatives);

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };

  void apply_penalties(std::span<float> logits, const SequenceSlice& slice, std::size_t drafts);
  void fill_logprobs(std::span<const float> logits, std::size_t count, SampledToken& out);
  TokenId draw(std::span<float> logits, const SamplingParams& params, double uniform);
  TokenId draw_cut(std::span<const float> logits, const SamplingParams& params, double uniform);
  // Fills candidates_ with those that top_p and min_p may keep, best first; returns the mass of
  // all.
  double select_mass(std::span<const float> logits, float best, const SamplingParams& params);
  // Fills candidates_ with the `count` best logits, best first, ties by id.
  void select_best(std::span<const float> logits, std::size_t count);

  static bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  }

  std::vector<float> weights_;         // [vocab] exponentials
  std::vector<std::uint32_t> counts_;  // [vocab] all 0 between calls
  std::vector<Candidate> candidates_;
  std::vector<double> bucket_mass_;
  double log_sum_ = 0.0;  // of the raw row, when logprobs are asked for
};

// Highest logit; the lowest id on a tie. NaN never wins; a row without a number gives 0.
TokenId argmax(std::span<const float> logits);

}  // namespace baton::engine
