#include "prefill_node/pull_cost.h"

#include <gtest/gtest.h>

namespace baton::prefill_node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kNow{seconds(1000)};

TEST(PullCost, ComparesBytesWithTokens) {
  const PullCost cost;
  // 100 tokens at 1000 tokens/s are 100 ms; 200 MB/s are guessed.
  EXPECT_TRUE(cost.is_worth("d0", 10'000'000, 100, 0, kNow));
  EXPECT_FALSE(cost.is_worth("d0", 30'000'000, 100, 0, kNow));
  EXPECT_FALSE(cost.is_worth("d0", 10'000'000, 100, 10'000, kNow));  // measured: faster
  EXPECT_TRUE(cost.is_worth("d0", 30'000'000, 100, 100, kNow));      // measured: slower
  EXPECT_FALSE(cost.is_worth("d0", 0, 1, 1000, kNow));               // a round trip for nothing
}

TEST(PullCost, LearnsThePairsBandwidthAndForgetsIt) {
  PullCost cost;
  cost.succeeded("d0", 10'000'000, milliseconds(1002), kNow);  // 10 MB/s
  EXPECT_NEAR(cost.bytes_per_second("d0", kNow), 10e6, 1e5);
  EXPECT_EQ(cost.bytes_per_second("d1", kNow), PullCost::kGuessedBytesPerSecond);
  EXPECT_FALSE(cost.is_worth("d0", 10'000'000, 100, 0, kNow));
  EXPECT_TRUE(cost.is_worth("d1", 10'000'000, 100, 0, kNow));
  cost.succeeded("d0", 100'000'000, milliseconds(1002), kNow);
  EXPECT_GT(cost.bytes_per_second("d0", kNow), 30e6);
  EXPECT_EQ(cost.bytes_per_second("d0", kNow + PullCost::kFresh), PullCost::kGuessedBytesPerSecond);
}

TEST(PullCost, LeavesANodeAloneAfterAFailure) {
  PullCost cost;
  cost.failed("d0", kNow);
  EXPECT_FALSE(cost.is_worth("d0", 1000, 1000, 0, kNow));
  EXPECT_TRUE(cost.is_worth("d1", 1000, 1000, 0, kNow));
  EXPECT_TRUE(cost.is_worth("d0", 1000, 1000, 0, kNow + PullCost::kHoldOff));
}

TEST(PullCost, LimitIsWhatComputingWouldTake) {
  EXPECT_EQ(PullCost::limit(2000, 1000), seconds(2));
  EXPECT_EQ(PullCost::limit(1, 1000), PullCost::kLeastLimit);
}

}  // namespace
}  // namespace baton::prefill_node
