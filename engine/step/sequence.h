// One choice of one request on one node: its tokens, its blocks, and how far keys and values are
// computed. The same class serves prefill (many pending tokens) and decode (one pending token, the
// last sampled).
//
// Owner: one scheduler; nobody else changes it. Thread: the node's control strand; while a step is
// in work the engine thread reads tokens and block ids, so nothing is changed until the step has
// ended. Failure: none; requests are checked before (`check_size`).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/types/request.h"
#include "common/types/token_event.h"
#include "engine/kv/block_table.h"
#include "engine/runner.h"
#include "engine/step/grammar_mask.h"

namespace baton::engine {

// What a request takes at most, from its own limits and the model's context.
struct RequestSize {
  std::uint32_t context = 0;     // tokens known at the start: prompt and replayed output
  std::uint32_t max_output = 0;  // output tokens it may end with, replayed ones included
  std::uint32_t max_stored = 0;  // tokens whose keys and values are ever stored
};

// ContextTooLong with both lengths, or InvalidArgument for an empty prompt, a token outside of the
// vocabulary, or a replayed output that already reaches the limit.
Result<RequestSize> check_size(const GenerateRequest& request,
                               std::uint32_t context_length,
                               std::uint32_t vocab_size);

// The log-probabilities of its prompt are asked for and go with the first token: no key or value of
// the prompt may come from a cache. One that is resumed has given them.
bool wants_prompt_logprobs(const GenerateRequest& request);

// Prompt and replayed output: the tokens that are known at the start.
std::vector<TokenId> context_of(const GenerateRequest& request);

class Sequence {
 public:
  // `table` covers at least the tokens to compute next; the first `computed` tokens' keys and
  // values are in it already. With computed == size.context, when they came from elsewhere,
  // `accept` of the token that follows comes next. REQUIRES: computed <= size.context.
  Sequence(GenerateRequest request, RequestSize size, BlockTable table, std::uint32_t computed);

  const GenerateRequest& request() const { return request_; }
  const RequestSize& size() const { return size_; }
  std::span<const TokenId> tokens() const { return tokens_; }  // prompt, then output
  std::span<const TokenId> output() const { return tokens().subspan(request_.prompt.size()); }
  std::uint32_t num_output() const { return static_cast<std::uint32_t>(output().size()); }
  std::uint32_t computed() const { return computed_; }
  // Tokens without keys and values yet: the next step may take up to so many.
  std::uint32_t num_pending() const {
    return static_cast<std::uint32_t>(tokens_.size()) - computed_;
  }
  bool is_prefilling() const { return computed_ < size_.context; }

  // The grammar of the request, which has accepted the output so far; null until it is set, and
  // where the request has none.
  void set_grammar(std::shared_ptr<GrammarMask> grammar) { grammar_ = std::move(grammar); }
  const std::shared_ptr<GrammarMask>& grammar() const { return grammar_; }
  // Why its grammar ends the sequence, as a sentence; empty: it does not.
  std::string_view grammar_fault() const {
    return grammar_ == nullptr ? std::string_view() : grammar_->fault();
  }

  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }

  // The next `count` pending tokens; samples when they are the last. `drafts` are borrowed.
  // REQUIRES: 1 <= count <= num_pending(); the table covers them and the drafts; no more drafts
  // than max_drafts().
  SequenceSlice slice(std::uint32_t count, std::span<const TokenId> drafts = {}) const;
  // Drafts that its next slice may carry, were there blocks for them: none while it prefills, and
  // never past its own end.
  std::uint32_t max_drafts() const;
  // The step that carried `slice(count)` has ended with `sampled` (present when it took all
  // pending tokens). Says whether the sequence is over.
  FinishReason advance(std::uint32_t count, const SampledToken* sampled);
  // The same after a slice with drafts: `sampled` are the tokens in order, each but the last equal
  // to its draft. Takes them until one ends the sequence.
  struct Advanced {
    FinishReason finish = FinishReason::None;
    std::uint32_t taken = 0;
  };
  Advanced advance_all(std::uint32_t count, std::span<const SampledToken> sampled);
  // Adds a token that another node sampled, as advance does. REQUIRES: num_pending() == 0.
  FinishReason accept(TokenId token);

 private:
  const GenerateRequest request_;
  const RequestSize size_;
  std::vector<TokenId> tokens_;
  BlockTable table_;
  const std::uint32_t begun_at_;  // tokens whose keys and values came from elsewhere
  std::uint32_t computed_;
  std::shared_ptr<GrammarMask> grammar_;
};

}  // namespace baton::engine
