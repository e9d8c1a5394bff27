// When the first token will come: from reported and learned rates, and a queue that refuses early
// at three times its capacity, on a manual clock.
#include "gateway/requests/ttft_prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/base/random.h"
#include "common/exec/manual_executor.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Backlog kNobody{};

NodeView prefill_node(std::uint64_t handle, float rate, std::uint64_t queued) {
  NodeView node;
  node.handle = NodeHandle{handle};
  node.role = NodeRole::Prefill;
  node.prefill_tokens_per_s = rate;
  node.queued_tokens = queued;
  return node;
}

double seconds_of(Duration value) {
  return std::chrono::duration<double>(value).count();
}

Backlog waiting(std::array<std::uint64_t, kNumTiers> tokens) {
  Backlog backlog;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    backlog[i] = {.tokens = tokens[i], .requests = tokens[i] / 100};
  }
  return backlog;
}

TierPolicies shares(double priority, double standard, double flex) {
  TierPolicies tiers;
  tiers[0].share = priority;
  tiers[1].share = standard;
  tiers[2].share = flex;
  for (TierPolicy& tier : tiers) {
    tier.starve_after = std::chrono::hours(1);
  }
  return tiers;
}

TEST(TtftPrediction, SaysNothingBeforeItKnowsARate) {
  const TtftPrediction prediction;
  const std::vector<NodeView> unknown{prefill_node(1, 0, 100)};
  EXPECT_FALSE(prediction.predict(unknown, kNobody, shares(0, 0, 0), Tier::Default, 10));
  EXPECT_FALSE(prediction.predict({}, kNobody, shares(0, 0, 0), Tier::Default, 10));
}

TEST(TtftPrediction, TakesTheNodeThatIsFreeFirst) {
  const TtftPrediction prediction;
  std::vector<NodeView> nodes{prefill_node(1, 1000, 3000), prefill_node(2, 500, 500)};
  auto said = prediction.predict(nodes, kNobody, shares(0, 0, 0), Tier::Default, 250);
  ASSERT_TRUE(said);
  EXPECT_DOUBLE_EQ(seconds_of(said->wait), 1.0);
  EXPECT_DOUBLE_EQ(seconds_of(said->own), 0.5);
  nodes[1].is_draining = true;
  said = prediction.predict(nodes, kNobody, shares(0, 0, 0), Tier::Default, 250);
  EXPECT_DOUBLE_EQ(seconds_of(said->wait), 3.0);
}

// Where nodes tell no rate, or none prefills for others.
TEST(TtftPrediction, APromptTakesAsLongAsTheyLatelyTook) {
  TtftPrediction prediction;
  EXPECT_EQ(prediction.needed({}, Tier::Default, 100), Duration{});
  for (int i = 0; i < 60; ++i) {
    prediction.on_computed(milliseconds(i < 20 ? 900 : 100));
    prediction.on_begun(TimePoint{} + milliseconds(100 * i), 10, true);
  }
  const auto said = prediction.predict({}, kNobody, shares(0, 0, 0), Tier::Default, 100);
  ASSERT_TRUE(said);
  EXPECT_NEAR(seconds_of(said->own), 0.15, 0.05);
  EXPECT_GT(prediction.needed({}, Tier::Default, 100), said->own) << "with some to spare";
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  EXPECT_DOUBLE_EQ(
      seconds_of(prediction.predict(nodes, kNobody, shares(0, 0, 0), Tier::Default, 100)->own),
      0.1);
}

TEST(TtftPrediction, LearnsTheRateAtWhichWorkIsBegun) {
  TtftPrediction prediction;
  TimePoint now{};
  // 200 tokens a second, although the node says 1000: decode is what limits.
  for (int i = 0; i < 50; ++i) {
    now += milliseconds(500);
    prediction.on_begun(now, 100, true);
  }
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  const auto said =
      prediction.predict(nodes, waiting({0, 400, 0}), shares(0, 0, 0), Tier::Default, 100);
  ASSERT_TRUE(said);
  EXPECT_NEAR(seconds_of(said->wait), 2.0, 0.05);
  // Time in which nothing waited is no time of full speed.
  prediction.on_begun(now, 100, false);
  prediction.on_begun(now + seconds(100), 100, true);
  EXPECT_NEAR(
      seconds_of(
          prediction.predict(nodes, waiting({0, 400, 0}), shares(0, 0, 0), Tier::Default, 100)
              ->wait),
      2.0,
      0.5);
}

TEST(TtftPrediction, WhatNodesRefuseWasNotBegun) {
  TtftPrediction prediction;
  TtftPrediction refusing;
  const auto refuse = [&](TimePoint now) {
    for (int i = 0; i < 5; ++i) {
      // Given to nodes while something waits, or as the last that waited.
      refusing.on_refused(refusing.on_begun(now, 100, i % 2 == 0));
    }
  };
  TimePoint now{};
  refuse(now);
  for (int i = 0; i < 50; ++i) {
    now += milliseconds(300);
    refuse(now);
    now += milliseconds(200);
    prediction.on_begun(now, 100, true);
    refusing.on_begun(now, 100, true);
    refuse(now);
  }
  const auto wait = [](const TtftPrediction& from) {
    const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
    return seconds_of(
        from.predict(nodes, waiting({0, 400, 0}), shares(0, 0, 0), Tier::Default, 100)->wait);
  };
  EXPECT_NEAR(wait(prediction), 2.0, 0.05);
  EXPECT_NEAR(wait(refusing), wait(prediction), 0.05);
}

TEST(TtftPrediction, WaitsBehindItsOwnTierAtItsShare) {
  const TtftPrediction prediction;
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  const TierPolicies tiers = shares(0.5, 0.25, 0.05);
  const auto wait = [&](Tier tier, std::array<std::uint64_t, kNumTiers> tokens) {
    return seconds_of(prediction.predict(nodes, waiting(tokens), tiers, tier, 1)->wait);
  };
  EXPECT_DOUBLE_EQ(wait(Tier::Priority, {0, 9000, 9000}), 0);
  // Highest of those who wait: its share and what is nobody's, 0.5 + 0.2.
  EXPECT_DOUBLE_EQ(wait(Tier::Priority, {700, 9000, 9000}), 1);
  EXPECT_DOUBLE_EQ(wait(Tier::Default, {9000, 250, 0}), 1);
  // All that waits is through before its share would let it through.
  EXPECT_DOUBLE_EQ(wait(Tier::Flex, {500, 0, 500}), 1);
  EXPECT_DOUBLE_EQ(wait(Tier::Default, {0, 1000, 0}), 1);
}

TEST(TtftPrediction, HigherTiersAreFirstAndLowerOnesUpToTheirShares) {
  TtftPrediction prediction;
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  const TierPolicies tiers = shares(0.5, 0.3, 0.05);
  const auto wait = [&](Tier tier, std::array<std::uint64_t, kNumTiers> tokens) {
    return seconds_of(prediction.predict(nodes, waiting(tokens), tiers, tier, 1)->wait);
  };
  EXPECT_NEAR(wait(Tier::Default, {200, 300, 9000}), 500 / (0.95 * 1000), 0.01);
  // Priority brings two fifths of the rate: more than its share of the rest is left for default.
  TimePoint now{};
  for (int i = 0; i < 300; ++i) {
    now += milliseconds(100);
    prediction.on_offered(now, Tier::Priority, 40);
  }
  EXPECT_NEAR(wait(Tier::Default, {0, 300, 9000}), 300 / (0.55 * 1000), 0.02);
  // What lower tiers bring above their share delays nobody.
  for (int i = 0; i < 300; ++i) {
    now += milliseconds(100);
    prediction.on_offered(now, Tier::Priority, 40);
    prediction.on_offered(now, Tier::Flex, 500);
  }
  EXPECT_NEAR(wait(Tier::Default, {0, 300, 0}), 300 / (0.55 * 1000), 0.02);
}

TEST(TtftPrediction, ATierThatIsAheadOfItsShareWaitsUntilItIsNot) {
  const TtftPrediction prediction;
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  const TierPolicies tiers = shares(0.5, 0.3, 0.05);
  const auto wait = [&](std::uint64_t tokens, double owed) {
    Backlog backlog = waiting({90'000, 90'000, tokens});
    backlog[2].owed = owed;
    return seconds_of(prediction.predict(nodes, backlog, tiers, Tier::Flex, 1)->wait);
  };
  EXPECT_DOUBLE_EQ(wait(0, 0), 0);
  EXPECT_DOUBLE_EQ(wait(0, -100), 2);
  EXPECT_DOUBLE_EQ(wait(100, -100), 4);
  EXPECT_DOUBLE_EQ(wait(100, 100), 0);
}

TEST(TtftPrediction, ATierThatStarvesHasItsTurns) {
  TtftPrediction prediction;
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  TierPolicies tiers = shares(0.5, 0.3, 0);
  tiers[2].starve_after = seconds(5);
  Backlog backlog = waiting({900'000, 900'000, 200});
  const auto wait = [&] {
    return seconds_of(prediction.predict(nodes, backlog, tiers, Tier::Flex, 1)->wait);
  };
  EXPECT_DOUBLE_EQ(wait(), 15) << "two are before it";
  backlog[2].since_begun = seconds(4);
  EXPECT_DOUBLE_EQ(wait(), 11);
  // One begins every ten seconds, and all three tiers starve.
  TimePoint now{};
  for (int i = 0; i < 50; ++i) {
    now += seconds(10);
    prediction.on_begun(now, 100, true);
  }
  EXPECT_NEAR(wait(), 3 * 30 - 4, 1);
}

TEST(TtftPrediction, FactorRisesWithWhatCameTooLate) {
  TtftPrediction prediction;
  const TtftPrediction::Answer said{seconds(1), seconds(0)};
  const Duration target = seconds(2);
  for (int i = 0; i < 20; ++i) {
    prediction.on_first_token(Tier::Default, said, milliseconds(1500), target);
  }
  EXPECT_NEAR(prediction.factor(Tier::Default), 1.55, 0.1);
  const double high = prediction.factor(Tier::Default);
  // Fixed costs of an idle cluster teach nothing.
  prediction.on_first_token(
      Tier::Default, {milliseconds(0), milliseconds(1)}, milliseconds(90), target);
  EXPECT_EQ(prediction.factor(Tier::Default), high);
  // One in a hundred may be late.
  for (int i = 0; i < 8000; ++i) {
    prediction.on_first_token(Tier::Default, said, milliseconds(i % 125 == 0 ? 1500 : 700), target);
  }
  EXPECT_NEAR(prediction.factor(Tier::Default), 0.74, 0.06);
  for (int i = 0; i < 1000; ++i) {
    prediction.on_first_token(Tier::Default, said, seconds(100), target);
  }
  EXPECT_EQ(prediction.factor(Tier::Default), 8);
}

// Of those that are given up there is no first token: without them only the quick ones would teach.
TEST(TtftPrediction, WhatWasGivenUpCountsAsLate) {
  TtftPrediction prediction;
  const TtftPrediction::Answer said{seconds(1), seconds(0)};
  for (int i = 0; i < 20; ++i) {
    prediction.on_expired(Tier::Flex, said, seconds(2));
  }
  EXPECT_GT(prediction.factor(Tier::Flex), 2);
  // By then such a request would not be let in.
  EXPECT_LT(prediction.factor(Tier::Flex), 2.3);
  EXPECT_EQ(prediction.factor(Tier::Default), TtftPrediction().factor(Tier::Default));
}

// At the highest factor only short waits are let in: they must be able to bring it down again.
TEST(TtftPrediction, FactorComesDownFromItsHighest) {
  TtftPrediction prediction;
  const Duration target = seconds(2);
  for (int i = 0; i < 100; ++i) {
    prediction.on_first_token(Tier::Default, {seconds(1), seconds(0)}, seconds(100), target);
  }
  ASSERT_EQ(prediction.factor(Tier::Default), 8);
  for (int i = 0; i < 3000; ++i) {
    const double factor = prediction.factor(Tier::Default);
    const auto wait = std::chrono::duration_cast<Duration>(milliseconds(1900) / factor);
    prediction.on_first_token(Tier::Default, {wait, seconds(0), factor}, wait * 11 / 10, target);
  }
  EXPECT_LT(prediction.factor(Tier::Default), 1.3);
}

// Two nodes of one credit each whose real speed varies and is 30 % below what they report; prompts
// of very different lengths come at `load` times what they can do.
struct Overload {
  Overload(double load_times, std::uint64_t seed, std::vector<Tier> asked = {Tier::Default})
      : load(load_times), tiers(std::move(asked)), random(seeded_random(seed)) {
    policies = shares(0.5, 0.3, 0.05);
    for (TierPolicy& tier : policies) {
      tier.limit = 1'000'000;
      tier.starve_after = seconds(5);
    }
  }

  double uniform() { return static_cast<double>(random() >> 11U) / 9007199254740992.0; }

  void run(Duration lasts) {
    AdmissionQueue queue(policies);
    ManualExecutor executor;
    const TimePoint end = executor.now() + lasts;
    struct Request {
      AdmissionQueue::Ticket ticket;
      TtftPrediction::Answer said;
      TimePoint received;
    };
    std::map<std::uint64_t, Request> requests;
    int free = 2;
    std::uint64_t next_id = 0;
    std::vector<TimerHandle> timers;
    std::function<void()> begin = [&] {
      AdmissionQueue::Scan scan;
      while (free > 0) {
        const auto id = queue.next("m", executor.now(), scan);
        if (!id) {
          return;
        }
        --free;
        Request& request = requests.at(id->value);
        queue.take("m", request.ticket, executor.now());
        prediction.on_begun(executor.now(), request.ticket.tokens, queue.size() > 0);
        const double takes = static_cast<double>(request.ticket.tokens) / (700 * (0.5 + uniform()));
        timers.push_back(executor.call_after(
            std::chrono::duration_cast<Duration>(std::chrono::duration<double>(takes)), [&, id] {
              const Request done = requests.extract(id->value).mapped();
              const Duration took = executor.now() - done.received;
              const Tier tier = done.ticket.tier;
              prediction.on_first_token(tier, done.said, took, target);
              tokens_done += static_cast<double>(done.ticket.tokens);
              tokens_of[static_cast<std::size_t>(tier)] += static_cast<double>(done.ticket.tokens);
              (took <= target ? in_time : late)[static_cast<std::size_t>(tier)] += 1;
              ++free;
              begin();
            }));
      }
    };
    std::function<void()> arrive = [&] {
      const auto tokens = static_cast<std::uint32_t>(20 + uniform() * uniform() * 1000);
      const std::vector<NodeView> nodes{prefill_node(1, 1000, 0), prefill_node(2, 1000, 0)};
      const Tier tier = tiers[random() % tiers.size()];
      prediction.on_offered(executor.now(), tier, tokens);
      const auto said =
          prediction.predict(nodes, queue.backlog("m", executor.now()), policies, tier, tokens);
      if (said->total() > target) {
        ++refused;
      } else {
        const RequestId id{++next_id};
        const auto ticket = queue.enter("m", id, tier, tokens, executor.now(), executor.now());
        requests.emplace(id.value, Request{*ticket, *said, executor.now()});
        begin();
      }
      // 270 tokens a prompt on average, 1400 tokens a second.
      const double gap = -std::log(1 - uniform()) * 270 / (1400 * load);
      if (executor.now() < end) {
        timers.push_back(executor.call_after(
            std::chrono::duration_cast<Duration>(std::chrono::duration<double>(gap)), arrive));
      }
    };
    arrive();
    while (executor.advance_to_next_timer()) {
    }
    unfinished = requests.size();
    work_possible = 1400 / std::log(3.0) * seconds_of(lasts);  // ln 3: mean of 1 / (0.5 + u)
  }

  Duration target = seconds(3);
  const double load;
  const std::vector<Tier> tiers;  // those that are asked for, equally often
  RandomSource random;
  TierPolicies policies;
  TtftPrediction prediction;
  std::array<int, kNumTiers> in_time{};
  std::array<int, kNumTiers> late{};
  std::array<double, kNumTiers> tokens_of{};  // done
  int refused = 0;
  std::size_t unfinished = 0;
  double tokens_done = 0;
  double work_possible = 0;
};

TEST(TtftPrediction, AtThreeTimesTheCapacityWhatIsAcceptedIsInTime) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Overload overload(3, seed);
    overload.run(seconds(300));
    EXPECT_EQ(overload.unfinished, 0U);
    EXPECT_GT(overload.refused, 0.5 * overload.in_time[1]) << "of long prompts most";
    EXPECT_GE(overload.in_time[1], 0.985 * (overload.in_time[1] + overload.late[1]))
        << "seed " << seed;
    // Caution does not leave the nodes idle.
    EXPECT_GE(overload.tokens_done, 0.97 * overload.work_possible) << "seed " << seed;
  }
}

// The lowest tier is served at its share for as long as the others bring work, whatever waits now.
TEST(TtftPrediction, AtThreeTimesTheCapacityEveryTierIsInTimeAndHasItsShare) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Overload overload(3, seed, {Tier::Priority, Tier::Default, Tier::Flex});
    overload.target = seconds(10);
    overload.run(seconds(1'000));
    EXPECT_EQ(overload.unfinished, 0U);
    int in_time = 0;
    int all = 0;
    for (std::size_t i = 0; i < kNumTiers; ++i) {
      in_time += overload.in_time[i];
      all += overload.in_time[i] + overload.late[i];
      // Flex has some 300 requests, and a factor to learn from them.
      EXPECT_GE(overload.in_time[i], 0.96 * (overload.in_time[i] + overload.late[i]))
          << kTierNames[i] << " seed " << seed;
      EXPECT_GE(overload.tokens_of[i], 0.8 * overload.policies[i].share * overload.tokens_done)
          << kTierNames[i] << " seed " << seed;
    }
    EXPECT_GE(in_time, 0.99 * all) << "seed " << seed;
    EXPECT_GE(overload.tokens_done, 0.97 * overload.work_possible) << "seed " << seed;
  }
}

TEST(TtftPrediction, OthersWorkToComeCountsOnlyAsFarAsItComes) {
  TtftPrediction prediction;
  const std::vector<NodeView> nodes{prefill_node(1, 1000, 0)};
  const TierPolicies tiers = shares(0.5, 0.3, 0.05);
  const auto wait = [&] {
    return seconds_of(
        prediction.predict(nodes, waiting({400, 0, 100}), tiers, Tier::Flex, 1)->wait);
  };
  EXPECT_DOUBLE_EQ(wait(), 0.5) << "nobody else comes";
  TimePoint now{};
  for (int i = 0; i < 300; ++i) {
    now += milliseconds(100);
    prediction.on_offered(now, Tier::Priority, 50);
  }
  EXPECT_NEAR(wait(), 1.0, 0.05) << "half of the rate is taken";
  for (int i = 0; i < 300; ++i) {
    now += milliseconds(100);
    prediction.on_offered(now, Tier::Priority, 100);
  }
  EXPECT_NEAR(wait(), 2.0, 0.05) << "its share is left: 5 % for 100 tokens";
}

TEST(TtftPrediction, AtHalfTheCapacityHardlyAnyIsRefused) {
  Overload overload(0.5, 1);
  overload.target = seconds(6);
  overload.run(seconds(300));
  EXPECT_EQ(overload.unfinished, 0U);
  EXPECT_LT(overload.refused, 0.02 * overload.in_time[1]);
}

}  // namespace
}  // namespace baton::gateway
