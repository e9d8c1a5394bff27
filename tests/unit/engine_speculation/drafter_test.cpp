#include "engine/speculation/drafter.h"

#include <gtest/gtest.h>

namespace baton::engine {
namespace {

constexpr DraftLimits kLimits{.max_tokens = 4, .min_match = 2};

// What `text` says, one token a step, with the trust it ends in.
double trust_in(const std::vector<TokenId>& text) {
  Drafter drafter(kLimits);
  for (std::size_t i = 1; i < text.size(); ++i) {
    drafter.offer(std::span(text).first(i));
    drafter.learn(std::span(text).subspan(i, 1), 0);
  }
  drafter.offer(text);
  return drafter.chance();
}

TEST(Drafter, TrustsTextThatRepeats) {
  std::vector<TokenId> text;
  for (int i = 0; i < 90; ++i) {
    text.push_back(i % 5);
  }
  EXPECT_GT(trust_in(text), 0.9);
}

TEST(Drafter, LosesTrustWhereItGuessesWrong) {
  std::vector<TokenId> text;
  for (int i = 0; i < 40; ++i) {
    text.insert(text.end(), {1, 2, 100 + i});  // what follows 1 2 is always new
  }
  text.insert(text.end(), {1, 2});
  EXPECT_LT(trust_in(text), 0.1);
}

TEST(Drafter, LearnsFromSeveralTokensAtOnce) {
  const std::vector<TokenId> text{1, 2, 3, 4, 5, 1, 2};
  Drafter drafter(kLimits);
  ASSERT_EQ(drafter.offer(text), 4U);
  const double before = drafter.chance();
  drafter.learn(std::vector<TokenId>{3, 4, 5, 1, 9}, 4);  // all four right, one more behind them
  drafter.offer(text);
  EXPECT_GT(drafter.chance(), before + 0.2);
  const double after = drafter.chance();
  drafter.learn(std::vector<TokenId>{8}, 0);
  drafter.offer(text);
  EXPECT_LT(drafter.chance(), after);
}

TEST(Drafter, NothingIsLearntWithoutAGuess) {
  Drafter drafter(kLimits);
  EXPECT_EQ(drafter.offer(std::vector<TokenId>{1, 2, 3}), 0U);
  const double before = drafter.chance();
  drafter.learn(std::vector<TokenId>{4}, 0);
  EXPECT_EQ(drafter.chance(), before);
}

TEST(Drafter, AModelIsAskedAgainAfterAWhile) {
  Drafter drafter({.mode = DraftMode::Model, .max_tokens = 4});
  const std::vector<TokenId> text{1, 2, 3};
  const double first = (drafter.offer(text), drafter.chance());
  EXPECT_EQ(drafter.offer(text), 4U);
  for (int i = 0; i < 30; ++i) {
    drafter.learn(std::vector<TokenId>{4}, 4);  // four drafts, none right
  }
  EXPECT_LT(drafter.chance(), 0.1);
  for (int i = 0; i < 500; ++i) {
    drafter.learn(std::vector<TokenId>{4}, 0);
  }
  EXPECT_GT(drafter.chance(), 0.9 * first);
  for (int i = 0; i < 10; ++i) {
    drafter.learn(std::vector<TokenId>{4, 5, 6, 7, 8}, 4);
  }
  EXPECT_GT(drafter.chance(), 0.9);
}

}  // namespace
}  // namespace baton::engine
