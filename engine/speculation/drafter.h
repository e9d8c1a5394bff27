// What one sequence may say next, and how far such guesses of it can be trusted.
//
// By n-grams a guess costs nothing but the rows that check it, so every guess is compared with what
// was really said, also one that was not sent to a step; trust follows those comparisons. A draft
// model guesses in the step itself (draft_model.h); here stands only how far it is trusted, and
// while it is not asked, trust comes back slowly, so that it is asked again.
//
// Owner: the decode scheduler, one a sequence. Thread: control strand. Failure: none.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "engine/speculation/ngram_index.h"

namespace baton::engine {

enum class DraftMode : std::uint8_t { Ngram, Model };

struct DraftLimits {
  DraftMode mode = DraftMode::Ngram;
  std::uint32_t max_tokens = 0;  // of one sequence in one step; 0: no speculation
  std::uint32_t min_match = 3;   // tokens that must be found again
  double step_seconds = 0;       // guesses make no step longer than this; 0: no limit
};

class Drafter {
 public:
  explicit Drafter(const DraftLimits& limits);

  // How many tokens may be guessed to follow `tokens`.
  std::uint32_t offer(std::span<const TokenId> tokens);
  // Chance that a guessed token is right when those before it are.
  double chance() const { return chances_[kind_]; }
  // The guess by n-grams; valid until the next offer.
  std::span<const TokenId> tokens() const { return guess_.tokens; }
  // What was said after the last offer, and how many drafts the step carried.
  void learn(std::span<const TokenId> said, std::uint32_t drafted);

 private:
  void note(bool is_right);

  // By the length of the match: a long one is a quotation, a short one may be chance.
  static constexpr std::size_t kKinds = 3;

  const DraftLimits limits_;
  NgramIndex index_;
  NgramIndex::Guess guess_;
  std::size_t kind_ = 0;  // of guess_
  std::array<double, kKinds> chances_;
};

}  // namespace baton::engine
