// Guesses how a text goes on from its own past: finds where its last tokens stood before and gives
// what followed there. Of several such places the one with the longest match wins, then the latest.
//
// Owner: a Drafter. Thread: one; pure. Failure: none; without a match there is no guess.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace baton::engine {

class NgramIndex {
 public:
  struct Guess {
    std::vector<TokenId> tokens;  // up to `most`; goes round where the match reaches the end
    std::uint32_t match = 0;      // tokens before it that are equal, up to kLongest
  };
  static constexpr std::uint32_t kLongest = 64;

  // REQUIRES: min_match >= 1.
  explicit NgramIndex(std::uint32_t min_match) : min_match_(min_match) {}

  // `tokens`: the whole text, which only grows from call to call.
  Guess guess(std::span<const TokenId> tokens, std::uint32_t most);

 private:
  std::uint64_t key_at(std::span<const TokenId> tokens, std::uint32_t end) const;
  void learn(std::span<const TokenId> tokens);

  const std::uint32_t min_match_;
  std::uint32_t learned_ = 0;                              // ends below it are in the index
  std::unordered_map<std::uint64_t, std::uint32_t> last_;  // key of min_match tokens -> their end
  std::vector<std::uint32_t> before_;                      // [end]: end of the same key; 0: none
};

}  // namespace baton::engine
