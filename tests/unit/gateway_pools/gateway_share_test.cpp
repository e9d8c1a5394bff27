// A gateway's share of all requests, from what nodes say they have taken.
#include "gateway/pools/gateway_share.h"

#include <gtest/gtest.h>

namespace baton::gateway {
namespace {

constexpr NodeHandle kFirst{1};
constexpr NodeHandle kSecond{2};

TEST(GatewayShare, IsAllBeforeMuchWasSeen) {
  GatewayShare share;
  EXPECT_EQ(share.get(), 1);
  share.observe(kFirst, 1'000, 0);  // what it took before is not ours to judge
  share.end_interval();
  EXPECT_EQ(share.get(), 1);
  share.observe(kFirst, 1'010, 5);
  share.end_interval();
  EXPECT_EQ(share.get(), 1);
}

TEST(GatewayShare, IsGivenOverTakenOfAllNodes) {
  GatewayShare share;
  for (std::uint64_t i = 0; i < 10; ++i) {
    share.observe(kFirst, 500 + 30 * i, 10 * i);
    share.observe(kSecond, 10 * i, 10 * i);
    share.end_interval();
  }
  EXPECT_NEAR(share.get(), 0.5, 1e-9);
}

TEST(GatewayShare, FollowsAChange) {
  GatewayShare share;
  std::uint64_t taken = 0;
  std::uint64_t given = 0;
  const auto run = [&](int intervals, std::uint64_t ours, std::uint64_t theirs) {
    for (int i = 0; i < intervals; ++i) {
      share.observe(kFirst, taken += ours + theirs, given += ours);
      share.end_interval();
    }
  };
  run(50, 10, 0);
  EXPECT_NEAR(share.get(), 1, 1e-9);
  run(200, 10, 30);
  EXPECT_NEAR(share.get(), 0.25, 0.01);
}

TEST(GatewayShare, ANodeThatLeavesAndANewLifeCountNothingTwice) {
  GatewayShare share;
  for (std::uint64_t i = 0; i < 10; ++i) {
    share.observe(kFirst, 10 * i, 10 * i);
    share.end_interval();
  }
  share.observe(kSecond, 5'000, 0);  // had others' requests before it was seen
  share.end_interval();
  share.observe(kSecond, 5'000, 0);
  share.observe(kFirst, 9'000, 0);  // known no more: as new
  share.end_interval();
  EXPECT_NEAR(share.get(), 1, 1e-9);
}

TEST(GatewayShare, ScalesWhatArrivesButNotTheNodes) {
  GatewayShare share;
  for (std::uint64_t i = 0; i < 10; ++i) {
    share.observe(kFirst, 40 * i, 10 * i);
    share.end_interval();
  }
  PoolObservation seen;
  seen.seconds = 2;
  seen.requests = 3;
  seen.prompt_tokens = 300;
  seen.waiting = 1;
  seen.to_decode = 1;
  share.scale(seen);
  EXPECT_EQ(seen.seconds, 2);
  EXPECT_EQ(seen.requests, 12U);
  EXPECT_NEAR(seen.prompt_tokens, 1'200, 1e-6);
  EXPECT_EQ(seen.waiting, 4U);
  EXPECT_EQ(seen.to_decode, 1U);
}

}  // namespace
}  // namespace baton::gateway
