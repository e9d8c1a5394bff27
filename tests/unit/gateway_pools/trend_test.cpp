// A rate seen through noise: steady ones stay steady, moving ones are followed and looked ahead.
#include "gateway/pools/trend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace baton::gateway {
namespace {

TEST(Trend, NothingSeenIsNothing) {
  EXPECT_EQ(Trend().at(10), 0);
}

TEST(Trend, FirstObservationsCountAlike) {
  Trend trend;
  trend.observe(4);
  EXPECT_DOUBLE_EQ(trend.at(0), 4);
  trend.observe(8);
  EXPECT_DOUBLE_EQ(trend.short_mean(), 6);
}

TEST(Trend, NoiseIsNoTrend) {
  std::mt19937 random(5);
  std::poisson_distribution<int> arrivals(30);
  Trend trend;
  double lowest = 1e9;
  double highest = 0;
  for (int i = 0; i < 4'000; ++i) {
    trend.observe(arrivals(random));
    if (i > 72) {
      lowest = std::min(lowest, trend.at(10));
      highest = std::max(highest, trend.at(10));
    }
  }
  // The mean of 72 independent ones has a deviation of 2 %; a slope taken for real would double it.
  EXPECT_GT(lowest, 30 * 0.8);
  EXPECT_LT(highest, 30 * 1.25);
}

TEST(Trend, ARampIsLookedAhead) {
  Trend trend;
  for (int i = 0; i < 300; ++i) {
    trend.observe(100 + i);
  }
  EXPECT_NEAR(trend.at(0), 399, 2);
  EXPECT_NEAR(trend.at(20), 419, 2);
}

TEST(Trend, AStepIsFollowedSoonAndNotOvershotByMuch) {
  Trend trend;
  for (int i = 0; i < 100; ++i) {
    trend.observe(10);
  }
  double highest = 0;
  for (int i = 0; i < 200; ++i) {
    trend.observe(20);
    highest = std::max(highest, trend.at(10));
    if (i == 12) {
      EXPECT_GT(trend.at(10), 17);
    }
  }
  EXPECT_LT(highest, 24);
  EXPECT_NEAR(trend.at(10), 20, 0.3);
}

TEST(Trend, NeverBelowNothing) {
  Trend trend;
  for (int i = 0; i < 30; ++i) {
    trend.observe(300 - 10.0 * i);
  }
  EXPECT_EQ(trend.at(100), 0);
}

}  // namespace
}  // namespace baton::gateway
