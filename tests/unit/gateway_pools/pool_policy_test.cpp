// The policy alone: what it asks for on observations made by hand, on a clock of its own.
#include "gateway/pools/pool_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/base/queueing.h"

namespace baton::gateway {
namespace {

using std::chrono::seconds;

constexpr double kInterval = 5;

// Requests a second of one kind, and nodes that are all alike: 1000 prompt tokens a second; steps
// of 20 ms and 1 ms for each sequence.
struct Cluster {
  std::uint32_t prefill = 4;
  std::uint32_t decode = 4;
  double rate = 1;
  double input = 1000;
  double output = 200;
  std::uint32_t waiting = 0;
  bool may_change = true;

  double batch() const {  // of each decode node
    const double tokens = rate * output / decode;
    return std::min(64.0, tokens * 0.020 / std::max(0.02, 1 - tokens * 0.001));
  }
  PoolObservation observation() const {
    PoolObservation seen;
    seen.seconds = kInterval;
    seen.requests = static_cast<std::uint32_t>(rate * kInterval);
    seen.prompt_tokens = seen.requests * input;
    seen.prompt_tokens_squared = seen.prompt_tokens * input;
    seen.ended = seen.requests;
    seen.ended_prompt_tokens = seen.prompt_tokens;
    seen.output_tokens = seen.requests * output;
    seen.waiting = waiting;
    seen.waiting_prompt_tokens = waiting * input;
    for (std::uint32_t i = 0; i < prefill + decode; ++i) {
      PoolNode& node = seen.nodes.emplace_back();
      node.handle = NodeHandle{i + 1};
      node.role = i < prefill ? NodeRole::Prefill : NodeRole::Decode;
      node.may_change = may_change;
      node.max_batch = 64;
      if (node.role == NodeRole::Prefill) {
        node.prefill_tokens_per_s = 1000;
        node.running = prefill - i;
      } else {
        node.running = rate > 0 ? static_cast<std::uint32_t>(batch()) + i % 2 : 0;
        node.step_s = 0.020 + 0.001 * node.running;
      }
    }
    return seen;
  }
};

class PoolPolicyTest : public ::testing::Test {
 protected:
  void use(PoolOptions options) { policy.emplace(options); }
  static PoolOptions options() {
    PoolOptions out;
    out.ttft_s = 4;
    out.itl_s = 0.06;
    out.cooldown = seconds(60);
    return out;
  }
  // Carries out what is decided, at once. Gives the number of changes.
  std::uint32_t run(Cluster& cluster, int intervals) {
    std::uint32_t changes = 0;
    for (int i = 0; i < intervals; ++i) {
      now += seconds(5);
      last = policy->decide(now, cluster.observation());
      for ([[maybe_unused]] const NodeHandle node : last.change) {
        cluster.prefill += last.to == NodeRole::Prefill ? 1U : ~0U;
        cluster.decode += last.to == NodeRole::Prefill ? ~0U : 1U;
        ++changes;
      }
    }
    return changes;
  }

  std::optional<PoolPolicy> policy{options()};
  PoolDecision last;
  TimePoint now{};
};

TEST(WaitQuantile, KnowsTheLimits) {
  // One server, half busy, exponential service: P(wait > t) = 0.5 e^(-t/2) for a service of 1.
  const QueueLoad load{.servers = 1, .rate = 0.5, .service_s = 1, .variation = 1};
  EXPECT_NEAR(wait_quantile(load, 0.9), 2 * std::log(5), 1e-9);
  EXPECT_EQ(wait_quantile(load, 0.4), 0);
  EXPECT_TRUE(std::isinf(wait_quantile({.servers = 2, .rate = 3, .service_s = 1}, 0.9)));
}

TEST_F(PoolPolicyTest, NothingIsKnownAtFirst) {
  Cluster cluster{.rate = 0};
  EXPECT_EQ(run(cluster, 100), 0U);
  EXPECT_EQ(last.split, (PoolSize{4, 4}));
}

TEST_F(PoolPolicyTest, IdleNodesAreNotMoved) {
  Cluster cluster{.rate = 0.4};
  EXPECT_EQ(run(cluster, 200), 0U);
  EXPECT_GT(last.room_now, 2);
}

TEST_F(PoolPolicyTest, TheTighterPoolGetsNodes) {
  Cluster prompts{.rate = 4, .input = 1200, .output = 50};
  EXPECT_GE(run(prompts, 200), 1U);
  EXPECT_GT(prompts.prefill, 4U);
  use(options());
  Cluster answers{.prefill = 6, .decode = 2, .rate = 4, .input = 200, .output = 400};
  EXPECT_GE(run(answers, 200), 1U);
  EXPECT_LT(answers.prefill, 6U);
}

TEST_F(PoolPolicyTest, WhatWaitsCountsBeforeTheRateDoes) {
  Cluster quiet{.rate = 2.6, .input = 1000, .output = 50};
  run(quiet, 60);
  const double before = last.room_now;
  quiet.waiting = 60;
  run(quiet, 1);
  EXPECT_LT(last.room_now, before * 0.8);
}

TEST_F(PoolPolicyTest, FloorsHoldWhateverTheLoad) {
  PoolOptions floors = options();
  floors.least = {2, 3};
  use(floors);
  Cluster cluster{.rate = 20, .input = 4000, .output = 20};
  run(cluster, 400);
  EXPECT_EQ(cluster.decode, 3U);
  EXPECT_EQ(last.desired.decode >= 3, true);
  use(floors);
  Cluster answers{.rate = 20, .input = 20, .output = 2000};
  run(answers, 400);
  EXPECT_EQ(answers.prefill, 2U);
}

TEST_F(PoolPolicyTest, CeilingsHold) {
  PoolOptions ceilings = options();
  ceilings.most = {5, 64};
  use(ceilings);
  Cluster cluster{.rate = 20, .input = 4000, .output = 20};
  run(cluster, 400);
  EXPECT_EQ(cluster.prefill, 5U);
  EXPECT_EQ(last.desired.prefill, 5U);
}

TEST_F(PoolPolicyTest, NothingBeginsWhileANodeChanges) {
  Cluster cluster{.rate = 8, .input = 2000, .output = 20};
  for (int i = 0; i < 50; ++i) {
    now += seconds(5);
    PoolObservation seen = cluster.observation();
    seen.to_prefill = 1;
    EXPECT_TRUE(policy->decide(now, seen).change.empty());
  }
}

TEST_F(PoolPolicyTest, ChangesAreACooldownApart) {
  PoolOptions slow = options();
  slow.cooldown = seconds(600);
  use(slow);
  Cluster cluster{.prefill = 2, .decode = 10, .rate = 3, .input = 1000, .output = 50};
  TimePoint before{};
  for (int i = 0; i < 1'000; ++i) {
    if (run(cluster, 1) > 0) {
      EXPECT_TRUE(before == TimePoint{} || now - before >= slow.cooldown);
      before = now;
    }
  }
  EXPECT_NE(before, TimePoint{});
}

TEST_F(PoolPolicyTest, TheIdlestNodeGoes) {
  Cluster cluster{.prefill = 6, .decode = 2, .rate = 4, .input = 200, .output = 400};
  while (last.change.empty()) {
    now += seconds(5);
    last = policy->decide(now, cluster.observation());
    ASSERT_LT(now, TimePoint{} + seconds(2'000));
  }
  EXPECT_EQ(last.to, NodeRole::Decode);
  EXPECT_EQ(last.change.front(), NodeHandle{6});  // of the prefill nodes the one with least to do
}

TEST_F(PoolPolicyTest, NodesOfOneRoleStay) {
  Cluster cluster{.rate = 8, .input = 2000, .output = 20, .may_change = false};
  EXPECT_EQ(run(cluster, 200), 0U);
  EXPECT_EQ(last.split, (PoolSize{4, 4}));
  EXPECT_GT(last.desired.prefill, 4U);
}

TEST_F(PoolPolicyTest, APoolThatLostAllItsNodesIsGivenOne) {
  for (const bool decode_is_lost : {true, false}) {
    use(options());
    Cluster cluster{.prefill = 2, .decode = 2, .rate = 0};
    EXPECT_EQ(run(cluster, 5), 0U);
    (decode_is_lost ? cluster.decode : cluster.prefill) = 0;
    EXPECT_EQ(run(cluster, 2), 0U) << "it may be back";
    EXPECT_EQ(run(cluster, 3), 1U);
    EXPECT_EQ(cluster.prefill, 1U);
    EXPECT_EQ(cluster.decode, 1U);
  }
}

TEST_F(PoolPolicyTest, OneThatNeverHadAnyIsGivenOneAfterACooldown) {
  Cluster cluster{.prefill = 3, .decode = 0, .rate = 0};
  EXPECT_EQ(run(cluster, 12), 0U) << "they may be loading their model";
  EXPECT_EQ(run(cluster, 3), 1U);
  EXPECT_EQ(cluster.decode, 1U);
}

TEST_F(PoolPolicyTest, TheLastNodeOfAllStaysWhatItIs) {
  Cluster cluster{.prefill = 1, .decode = 1, .rate = 0};
  run(cluster, 5);
  cluster.decode = 0;
  EXPECT_EQ(run(cluster, 100), 0U);
}

TEST_F(PoolPolicyTest, APoolBelowItsFloorIsFilledUpFromWhatTheOtherHasAboveIts) {
  PoolOptions floors = options();
  floors.least = {2, 3};
  for (const double rate : {0.0, 0.4}) {
    use(floors);
    Cluster cluster{.prefill = 5, .decode = 3, .rate = rate};
    EXPECT_EQ(run(cluster, 20), 0U);
    cluster.decode = 1;
    EXPECT_EQ(run(cluster, 2), 0U) << "they may be back";
    EXPECT_EQ(run(cluster, 1), 2U);
    EXPECT_EQ(last.by, SplitBy::Floor);
    EXPECT_EQ(cluster.prefill, 3U);
    EXPECT_EQ(cluster.decode, 3U);
  }
}

TEST_F(PoolPolicyTest, AFloorTakesNothingFromBelowTheOther) {
  PoolOptions floors = options();
  floors.least = {2, 3};
  use(floors);
  Cluster cluster{.prefill = 3, .decode = 3, .rate = 0};
  run(cluster, 5);
  cluster.decode = 1;
  EXPECT_EQ(run(cluster, 10), 1U) << "of three prefill nodes two are their floor";
  EXPECT_EQ(cluster.prefill, 2U);
  EXPECT_EQ(run(cluster, 100), 0U);
  cluster.decode = 0;
  EXPECT_EQ(run(cluster, 10), 1U) << "nothing is served: floors do not count";
}

TEST_F(PoolPolicyTest, AFloorThatWasNeverReachedIsWaitedForACooldown) {
  PoolOptions floors = options();
  floors.least = {1, 2};
  use(floors);
  Cluster cluster{.prefill = 3, .decode = 1, .rate = 0};
  EXPECT_EQ(run(cluster, 12), 0U) << "the other may be loading its model";
  EXPECT_EQ(run(cluster, 3), 1U);
  EXPECT_EQ(cluster.decode, 2U);
}

// Two nodes under a load for dozens: what they tell says little of how dozens would do.
TEST_F(PoolPolicyTest, ReplicasAreAtMostTwiceTheNodesThere) {
  Cluster cluster{
      .prefill = 2, .decode = 2, .rate = 40, .input = 200, .output = 400, .may_change = false};
  run(cluster, 100);
  EXPECT_EQ(last.desired.decode, 4U);
  cluster.decode = 4;
  run(cluster, 2);
  EXPECT_EQ(last.desired.decode, 8U);
  cluster.decode = 1;  // lost: what was asked for stays asked for
  run(cluster, 2);
  EXPECT_EQ(last.desired.decode, 8U);
}

TEST_F(PoolPolicyTest, ARatioIsKeptWhateverTheLoad) {
  PoolOptions fixed = options();
  fixed.ratio = PoolSize{1, 3};
  use(fixed);
  Cluster cluster{.rate = 8, .input = 2000, .output = 20};
  run(cluster, 200);
  EXPECT_EQ(cluster.prefill, 2U);
  EXPECT_EQ(last.desired.decode, 3 * last.desired.prefill);
}

TEST_F(PoolPolicyTest, ReplicasGoUpAtOnceAndDownAfterACooldown) {
  Cluster cluster{.rate = 1, .input = 1000, .output = 100};
  run(cluster, 60);
  const PoolSize few = last.desired;
  cluster.rate = 4;
  run(cluster, 40);
  const PoolSize many = last.desired;
  EXPECT_GT(many.prefill, few.prefill);
  cluster.rate = 1;
  run(cluster, 11);  // less than the cooldown
  EXPECT_EQ(last.desired, many);
  run(cluster, 300);
  EXPECT_EQ(last.desired, few);
}

TEST_F(PoolPolicyTest, AfterFewRequestsReplicasAreWhatIsThere) {
  Cluster cluster{.prefill = 2, .decode = 2, .rate = 0.2, .input = 1000, .output = 4000};
  EXPECT_EQ(run(cluster, 3), 0U);  // three requests
  EXPECT_EQ(last.desired, (PoolSize{2, 2}));
  cluster.rate = 0;
  EXPECT_EQ(run(cluster, 50), 0U);
  EXPECT_EQ(last.desired, (PoolSize{2, 2})) << "nothing is known, so nothing is taken away";
  EXPECT_EQ(run(cluster, 100), 0U);
  EXPECT_EQ(last.desired, (PoolSize{1, 1})) << "all this time nothing came";
}

TEST_F(PoolPolicyTest, ARatioAloneAsksForNoMoreNodes) {
  PoolOptions fixed = options();
  fixed.ratio = PoolSize{1, 3};
  use(fixed);
  Cluster cluster{.prefill = 2, .decode = 2, .rate = 0};
  run(cluster, 1);
  EXPECT_EQ(last.desired, (PoolSize{2, 2}));
  EXPECT_EQ(cluster.prefill, 1U);
  PoolObservation seen = cluster.observation();
  seen.nodes.pop_back();  // on its way
  seen.to_decode = 1;
  last = policy->decide(now + seconds(5), seen);
  EXPECT_EQ(last.desired, (PoolSize{1, 3}));
}

}  // namespace
}  // namespace baton::gateway
