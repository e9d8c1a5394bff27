// The mask of a sequence's next token, and the sequence's place in its grammar. The mask is made by
// a worker while the step's forward pass runs; where that has not begun when the sampler asks, the
// sampler makes it itself. So nobody ever waits for a thread that has not started.
//
// Owner: the sequence; the worker's task shares it. Thread: control strand, but `fill_wanted`
// (worker) and `allowed` (engine thread). Between `want` and the end of the step the strand calls
// nothing else. Failure: `fault`, for a grammar that allows no token, or one whose masks take so
// long that they would hold up every sequence of the node; the sequence then ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/runner.h"

namespace baton::engine {

class GrammarMask final : public TokenMask {
 public:
  explicit GrammarMask(std::shared_ptr<const CompiledGrammar> grammar);

  // False: the grammar does not allow it here.
  bool accept(TokenId token);
  // Leading drafts that the grammar allows; the others are not worth computing.
  std::size_t count_accepted(std::span<const TokenId> drafts);
  // Why the sequence cannot go on, as a sentence; empty: it can. Where no token fitted, what ends a
  // generation was allowed.
  std::string_view fault() const { return fault_; }

  // The next step samples behind what was accepted.
  void want();
  // Makes the mask that is wanted, unless another thread does or has.
  void fill_wanted();

  std::span<const std::uint32_t> allowed(std::span<const TokenId> drafts) override;

 private:
  enum class State : std::uint8_t { None, Wanted, Filling, Ready };

  void fill();
  // Fills `words`, and looks at the time and what came of it. False: every token is allowed.
  bool fill_into(std::span<std::uint32_t> words);
  // Nobody else touches the matcher from here on.
  void settle();

  std::atomic<State> state_ = State::None;
  GrammarMatcher matcher_;  // of whoever is Filling, else the caller's
  std::string_view fault_;
  std::chrono::nanoseconds spent_{0};  // on masks
  std::uint32_t num_masks_ = 0;
  bool is_open_ = false;  // every token is allowed
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> draft_words_;
};

}  // namespace baton::engine
