// The mask of a sequence's next token, and the sequence's place in its grammar. The mask is made by
// a worker while the step's forward pass runs; where that has not begun when the sampler asks, the
// sampler makes it itself, if the last one was quick. A mask that is late holds up its own sequence
// alone: that sits out the step, and is sampled in a later one from the same row.
//
// Owner: the sequence; the worker's task shares it. Thread: control strand, but `fill_wanted`
// (worker), `is_late` and `allowed` (engine thread). Between `want` and the end of the step the
// strand calls nothing else but `is_ready`, and after a step that it sat out nothing until the mask
// is ready. Failure: `fault`, for a grammar that allows no token, or one whose masks take so long
// that they are of no use; the sequence then ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/runner.h"

namespace baton::engine {

// A mask that took longer is hard: no step waits for the next one, and nobody guesses ahead of it.
inline constexpr std::chrono::nanoseconds kQuickMask = std::chrono::milliseconds(1);

class GrammarMask final : public TokenMask {
 public:
  explicit GrammarMask(std::shared_ptr<const CompiledGrammar> grammar,
                       std::chrono::nanoseconds quick = kQuickMask);

  // False: the grammar does not allow it here.
  bool accept(TokenId token);
  // Leading drafts that the grammar allows; the others are not worth computing.
  std::size_t count_accepted(std::span<const TokenId> drafts);
  // Why the sequence cannot go on, as a sentence; empty: it can. Where no token fitted, what ends a
  // generation was allowed. REQUIRES: no mask is wanted that is not ready.
  std::string_view fault() const { return fault_; }

  // The next step samples behind what was accepted. No-op when that mask is ready.
  void want();
  bool is_ready() const;
  // The last mask was.
  bool is_hard() const;
  // Makes the mask that is wanted, unless another thread does or has.
  void fill_wanted();

  bool is_late() override;
  std::span<const std::uint32_t> allowed(std::span<const TokenId> drafts) override;

 private:
  enum class State : std::uint8_t { None, Wanted, Filling, Ready };

  // Nobody else touches the matcher while the lock is held.
  std::unique_lock<std::mutex> quiet();
  // REQUIRES: state_ is Filling, by this thread.
  void fill();
  // Fills `words`, and looks at the time and what came of it. False: every token is allowed.
  bool fill_into(std::span<std::uint32_t> words);

  const std::chrono::nanoseconds quick_;
  mutable std::mutex mutex_;  // guards state_ and is_hard_
  std::condition_variable filled_;
  State state_ = State::None;
  bool is_hard_;
  // Of whoever is Filling, else of whoever holds the lock.
  GrammarMatcher matcher_;
  std::string_view fault_;
  std::chrono::nanoseconds last_{0};   // that a mask took
  std::chrono::nanoseconds spent_{0};  // on all
  std::uint32_t num_masks_ = 0;
  bool is_open_ = false;  // every token is allowed
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> draft_words_;
};

}  // namespace baton::engine
