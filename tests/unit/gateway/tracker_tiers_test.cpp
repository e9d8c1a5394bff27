// Tiers through the whole tracker, against scripted nodes on a manual clock.
#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

class TierTest : public TrackerTest {
 protected:
  std::shared_ptr<TimedSink> submit_to(Tier tier) {
    auto sink = std::make_shared<TimedSink>(executor);
    Submission submission{request(++last_id), executor.now(), sink};
    submission.tier = tier;
    tracker->submit(std::move(submission));
    return sink;
  }
  std::uint64_t last_id = 0;
};

TEST_F(TierTest, HigherTiersAreServedFirstUpToTheSharesOfOthers) {
  TrackerOptions options;
  options.queue_limit = 2000;
  options.tiers[0].share_percent = 40;
  options.tiers[1].share_percent = 40;
  options.tiers[2].share_percent = 10;
  start(options);
  NodeScript script;
  script.credits = 1;
  script.prefill_delay = milliseconds(10);
  add("p0", script);
  add("d0");
  std::array<std::vector<std::shared_ptr<TimedSink>>, kNumTiers> sinks;
  for (int i = 0; i < 400; ++i) {
    for (const std::size_t tier : {2U, 1U, 0U}) {
      sinks[tier].push_back(submit_to(static_cast<Tier>(tier)));
    }
  }
  EXPECT_EQ(tracker->queued(Tier::Flex), 399U);  // one was begun at once
  pass(4000);
  std::array<double, kNumTiers> served{};
  for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
    for (const auto& sink : sinks[tier]) {
      served[tier] += sink->first ? 1 : 0;
    }
  }
  const double all = served[0] + served[1] + served[2];
  EXPECT_GT(all, 300);
  EXPECT_NEAR(served[0] / all, 0.5, 0.02);
  EXPECT_NEAR(served[1] / all, 0.4, 0.02);
  EXPECT_NEAR(served[2] / all, 0.1, 0.02);
}

TEST_F(TierTest, AFullTierLeavesTheOthersTheirQueue) {
  TrackerOptions options;
  options.queue_limit = 5;
  start(options);
  NodeScript script;
  script.credits = 1;
  script.prefill_delay = milliseconds(50);
  add("p0", script);
  add("d0");
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(submit_to(Tier::Flex)->end);
  }
  EXPECT_TRUE(submit_to(Tier::Flex)->is_refused());
  const auto priority = submit_to(Tier::Priority);
  EXPECT_FALSE(priority->end);
  pass(120);
  EXPECT_TRUE(priority->end) << "it waits for the one in work alone";
}

// Three times as many requests as the nodes can serve: each is refused or in time, none is lost,
// and the nodes stay busy. Only while no rate is known some wait for nothing.
TEST_F(TierTest, WhatCannotBeInTimeIsRefusedAtOnce) {
  TrackerOptions options;
  options.queue_limit = 10'000;
  options.tiers[1].ttft_target = milliseconds(500);
  start(options);
  NodeScript script;
  script.credits = 2;
  script.prefill_delay = milliseconds(50);  // 40 a second
  add("p0", script);
  add("d0");
  std::vector<std::shared_ptr<TimedSink>> sinks;
  for (int i = 0; i < 2400; ++i) {
    sinks.push_back(submit_to(Tier::Default));
    if (sinks.back()->end) {
      EXPECT_TRUE(sinks.back()->is_refused());
      EXPECT_GE(sinks.back()->end->error->retry_after_s, 1U);
    }
    executor.advance(std::chrono::microseconds(8333));
  }
  pass(5000);
  int in_time = 0;
  int late = 0;
  int refused = 0;
  int expired = 0;
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->end) << "a request without an end";
    if (sink->is_refused()) {
      ++refused;
      if (*sink->ended > Duration{}) {
        EXPECT_GE(*sink->ended, milliseconds(430)) << "given up while it could be in time";
        EXPECT_LE(*sink->ended, milliseconds(600));
        ++expired;
      }
    } else {
      ASSERT_FALSE(sink->end->error);
      (*sink->first <= milliseconds(500) ? in_time : late) += 1;
    }
  }
  EXPECT_EQ(in_time + late + refused, 2400);
  EXPECT_GE(in_time, 0.95 * 800) << "of 20 s at 40 a second; " << late << " were late";
  EXPECT_LE(late, 0.01 * (in_time + late));
  EXPECT_LE(expired, 0.01 * refused);
  expect_quiet();
}

// Where decode limits, each free place is asked for by several and given to one: what was refused
// is no work begun.
TEST_F(TierTest, BusyDecodeNodesDoNotLookFast) {
  TrackerOptions options;
  options.queue_limit = 10'000;
  options.tiers[1].ttft_target = milliseconds(500);
  start(options);
  add("p0");
  NodeScript script;
  script.max_batch = 4;
  script.step = milliseconds(10);  // 12 tokens: about 36 a second
  add("d0", script);
  std::vector<std::shared_ptr<TimedSink>> sinks;
  for (int i = 0; i < 2400; ++i) {
    sinks.push_back(submit_to(Tier::Default));
    executor.advance(std::chrono::microseconds(8333));
  }
  pass(5000);
  int in_time = 0;
  int late = 0;
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->end);
    if (sink->first) {
      (*sink->first <= milliseconds(500) ? in_time : late) += 1;
    }
  }
  EXPECT_GE(in_time, 0.9 * 727) << "of 20 s at 36 a second; " << late << " were late";
  EXPECT_LE(late, 0.01 * (in_time + late));
  expect_quiet();
}

// No rate is known when these come: all are let in, and wait for the one place there is.
TEST_F(TierTest, WhoCanNoLongerBeInTimeIsRefusedAndFreesItsPlace) {
  TrackerOptions options;
  options.tiers[1].ttft_target = milliseconds(500);
  start(options);
  NodeScript script;
  script.credits = 1;
  script.prefill_delay = milliseconds(300);
  add("p0", script);
  add("d0");
  std::vector<std::shared_ptr<TimedSink>> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(submit_to(Tier::Default));
  }
  pass(450);
  for (const auto& sink : {sinks[2], sinks[3]}) {
    EXPECT_FALSE(sink->end) << "its time is not over";
  }
  pass(150);
  const auto fresh = submit_to(Tier::Default);
  for (const auto& sink : {sinks[2], sinks[3]}) {
    ASSERT_TRUE(sink->is_refused());
    EXPECT_FALSE(sink->first);
    EXPECT_GE(sink->end->error->retry_after_s, 1U);
    EXPECT_GE(*sink->ended, milliseconds(500));
    EXPECT_LE(*sink->ended, milliseconds(600));
  }
  pass(2000);
  EXPECT_FALSE(sinks[1]->end->error) << "nodes were at it: late, and answered";
  EXPECT_GT(*sinks[1]->first, milliseconds(500));
  EXPECT_FALSE(fresh->end->error);
  EXPECT_LE(*fresh->first, milliseconds(500));
  expect_quiet();
}

TEST_F(TierTest, WhoGoesOnAtAnotherNodeIsNotRefusedForItsDeadline) {
  TrackerOptions options;
  options.tiers[1].ttft_target = milliseconds(500);
  start(options);
  NodeScript script;
  script.prefill_delay = milliseconds(400);
  ScriptedNode& node = add("p0", script);
  add("d0");
  const auto sink = submit_to(Tier::Default);
  pass(300);
  node.kill();
  pass(1000);
  EXPECT_FALSE(sink->end) << "it waits for a node";
  add("p1");
  pass(3000);
  ASSERT_TRUE(sink->end);
  EXPECT_FALSE(sink->end->error);
  EXPECT_GE(*sink->first, milliseconds(1300));
  expect_quiet();
}

TEST_F(TierTest, WhereNoPairIsLeftNobodyIsToldThatTooMuchWaits) {
  TrackerOptions options;
  options.tiers[1].ttft_target = milliseconds(500);
  start(options);
  add("p0");
  ScriptedNode& decode = add("d0");
  pass(100);
  decode.kill();
  pass(100);
  const auto sink = submit_to(Tier::Default);
  pass(700);
  ASSERT_TRUE(sink->end);
  EXPECT_FALSE(sink->is_refused());
  EXPECT_EQ(sink->end->error->status, 503);
  expect_quiet();
}

TEST_F(TierTest, EarlyRefusalCanBeSwitchedOff) {
  TrackerOptions options;
  options.queue_limit = 10'000;
  options.tiers[1].ttft_target = milliseconds(500);
  options.tiers[1].refuse_early = false;
  start(options);
  NodeScript script;
  script.credits = 1;
  script.prefill_delay = milliseconds(50);
  add("p0", script);
  add("d0");
  for (int i = 0; i < 300; ++i) {
    EXPECT_FALSE(submit_to(Tier::Default)->end);
    pass(10);
  }
  EXPECT_GT(tracker->queued(), 200U) << "late ones wait on, too";
}

}  // namespace
}  // namespace baton::gateway
