#include "gateway/requests/token_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace baton::gateway {
namespace {

TokenEvent tokens(std::uint32_t index,
                  std::vector<TokenId> ids,
                  FinishReason finish = FinishReason::None) {
  TokenEvent event;
  event.index = index;
  event.tokens = std::move(ids);
  event.finish = finish;
  return event;
}

std::vector<TokenId> ids_of(const std::vector<TokenEvent>& events) {
  std::vector<TokenId> ids;
  for (const TokenEvent& event : events) {
    ids.insert(ids.end(), event.tokens.begin(), event.tokens.end());
  }
  return ids;
}

TEST(TokenOrder, FirstTokenAfterLaterOnes) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  ASSERT_TRUE(order.push(tokens(1, {11}), ready));
  ASSERT_TRUE(order.push(tokens(2, {12}, FinishReason::Stop), ready));
  EXPECT_TRUE(ready.empty());
  ASSERT_TRUE(order.push(tokens(0, {10}), ready));
  EXPECT_EQ(ids_of(ready), (std::vector<TokenId>{10, 11, 12}));
  EXPECT_TRUE(order.is_finished());
}

TEST(TokenOrder, DropsRepeatsAndTrimsOverlaps) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  ASSERT_TRUE(order.push(tokens(0, {10, 11}), ready));
  ASSERT_TRUE(order.push(tokens(0, {10}), ready));
  ASSERT_TRUE(order.push(tokens(1, {11, 12}), ready));
  EXPECT_EQ(ids_of(ready), (std::vector<TokenId>{10, 11, 12}));
  EXPECT_EQ(order.dropped(), 1U);
}

TEST(TokenOrder, PureEndComesAfterItsTokens) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  ASSERT_TRUE(order.push(tokens(2, {}, FinishReason::Length), ready));
  EXPECT_TRUE(ready.empty());
  ASSERT_TRUE(order.push(tokens(0, {10, 11}), ready));
  ASSERT_EQ(ready.size(), 2U);
  EXPECT_EQ(ready[1].finish, FinishReason::Length);
}

TEST(TokenOrder, NothingAfterTheEnd) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  ASSERT_TRUE(order.push(tokens(0, {10}, FinishReason::Stop), ready));
  ASSERT_TRUE(order.push(tokens(1, {11}), ready));
  EXPECT_EQ(ready.size(), 1U);
}

TEST(TokenOrder, ASecondAttemptRepeatsInSilence) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  ASSERT_TRUE(order.push(tokens(0, {10, 11}), ready));
  ASSERT_TRUE(order.push(tokens(3, {13}), ready));
  order.restart();
  ready.clear();
  ASSERT_TRUE(order.push(tokens(0, {10}), ready));
  ASSERT_TRUE(order.push(tokens(1, {11}), ready));
  ASSERT_TRUE(order.push(tokens(2, {12}, FinishReason::Stop), ready));
  EXPECT_EQ(ids_of(ready), (std::vector<TokenId>{12}));
}

TEST(TokenOrder, BoundsWhatWaits) {
  TokenOrder order;
  std::vector<TokenEvent> ready;
  for (std::uint32_t i = 0; i < TokenOrder::kMaxWaiting; ++i) {
    ASSERT_TRUE(order.push(tokens(i + 1, {1}), ready));
  }
  EXPECT_FALSE(order.push(tokens(9999, {1}), ready));
}

TEST(TokenOrder, AnyShuffleWithRepeatsGivesTheSequence) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenEvent> events;
    std::vector<TokenId> expected;
    std::uint32_t index = 0;
    while (index < 30) {
      const std::uint32_t count = 1 + random() % 3;
      std::vector<TokenId> ids;
      for (std::uint32_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<TokenId>(index + i));
      }
      expected.insert(expected.end(), ids.begin(), ids.end());
      events.push_back(tokens(index, ids));
      if (random() % 4 == 0) {
        events.push_back(tokens(index, ids));
      }
      index += count;
    }
    events.push_back(tokens(index, {}, FinishReason::Length));
    std::shuffle(events.begin(), events.end(), random);
    TokenOrder order;
    std::vector<TokenEvent> ready;
    for (TokenEvent& event : events) {
      ASSERT_TRUE(order.push(std::move(event), ready));
    }
    EXPECT_EQ(ids_of(ready), expected);
    EXPECT_TRUE(order.is_finished());
  }
}

}  // namespace
}  // namespace baton::gateway
