#include "engine/speculation/ngram_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace baton::engine {
namespace {

using Tokens = std::vector<TokenId>;

NgramIndex::Guess guess(const Tokens& tokens, std::uint32_t min_match, std::uint32_t most) {
  NgramIndex index(min_match);
  return index.guess(tokens, most);
}

TEST(NgramIndex, GoesOnAsBefore) {
  const auto found = guess({1, 2, 3, 4, 5, 6, 1, 2, 3}, 2, 3);
  EXPECT_EQ(found.tokens, (Tokens{4, 5, 6}));
  EXPECT_EQ(found.match, 3U);
}

TEST(NgramIndex, NoMatchNoGuess) {
  EXPECT_TRUE(guess({1, 2, 3, 4, 5}, 2, 4).tokens.empty());
  EXPECT_TRUE(guess({1, 2, 9, 2}, 2, 4).tokens.empty());  // one token of two
  EXPECT_TRUE(guess({}, 1, 4).tokens.empty());
  EXPECT_TRUE(guess({7}, 1, 4).tokens.empty());
  EXPECT_TRUE(guess({7, 7, 7}, 1, 0).tokens.empty());
}

TEST(NgramIndex, LongestMatchWinsThenTheLatest) {
  //            match of 3 …        of 2 …
  EXPECT_EQ(guess({5, 1, 2, 30, 9, 1, 2, 40, 8, 5, 1, 2}, 2, 1).tokens, Tokens{30});
  EXPECT_EQ(guess({9, 1, 2, 30, 9, 1, 2, 40, 8, 9, 1, 2}, 2, 1).tokens, Tokens{40});
}

TEST(NgramIndex, GoesRoundInALoop) {
  EXPECT_EQ(guess({1, 2, 1, 2, 1, 2}, 2, 5).tokens, (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(guess({4, 4, 4}, 2, 3).tokens, (Tokens{4, 4, 4}));
}

// Whatever the text, a guess follows an equal place, and a growing index finds what a new one does.
TEST(NgramIndex, GuessesAreQuotations) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const std::uint32_t min_match = 1 + round % 4;
    NgramIndex growing(min_match);
    Tokens text;
    while (text.size() < 200) {
      text.push_back(static_cast<TokenId>(random() % 3));
      if (random() % 3 == 0) {
        continue;
      }
      const auto found = growing.guess(text, 1);
      EXPECT_EQ(found.tokens, guess(text, min_match, 1).tokens);
      // Where min_match tokens stand earlier, there is a guess, and the match is as long as said.
      const auto tail = text.end() - std::min<std::ptrdiff_t>(min_match, std::ssize(text));
      const bool known =
          text.size() > min_match &&
          std::search(text.begin(), text.end() - 1, tail, text.end()) != text.end() - 1;
      ASSERT_EQ(found.tokens.size(), known ? 1U : 0U);
      if (known) {
        ASSERT_GE(found.match, min_match);
        Tokens quoted(text.end() - found.match, text.end());
        quoted.push_back(found.tokens[0]);
        EXPECT_NE(std::search(text.begin(), text.end(), quoted.begin(), quoted.end()), text.end());
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
