// One message of the gateway starts a request; a node that does not take it says so by one event,
// and then it was no attempt.
#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

class HandOnTest : public TrackerTest {
 protected:
  Node& node(const std::string& name) { return *membership->find(membership->handle_of(name)); }

  void give(const std::string& decode, std::uint64_t request, std::uint32_t attempt) {
    wire::Granted granted;
    granted.set_request(request);
    granted.set_attempt(attempt);
    tracker->on_granted(node(decode), granted);
    pass(5);
  }

  static void expect_whole(const RecordingSink& sink) {
    ASSERT_TRUE(sink.end);
    EXPECT_FALSE(sink.end->error);
    EXPECT_EQ(sink.text(), "Hello world$");
  }
};

TEST_F(HandOnTest, OnlyTheFirstRequestOfAPairComesBackToTheGateway) {
  start();
  ScriptedNode& p0 = add("p0");
  ScriptedNode& d0 = add("d0");
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const auto sink = submit(id);
    pass(50);
    expect_whole(*sink);
    EXPECT_EQ(sink->end->figures.attempts, 1U);
  }
  EXPECT_EQ(d0.counts().reserves, 4U);
  EXPECT_EQ(p0.counts().prefills, 4U);
  EXPECT_EQ(p0.counts().handed, 3U);
  expect_quiet();
}

TEST_F(HandOnTest, WhatAPrefillNodeRefusesIsNoAttempt) {
  for (const ErrorCode code : {ErrorCode::Busy, ErrorCode::NoBlocks}) {
    start();
    ScriptedNode& p0 = add("p0");
    ScriptedNode& d0 = add("d0");
    const auto first = submit(1);
    pass(50);
    expect_whole(*first);
    p0.script().prefill_error = Error{code, "scripted"};
    const auto sink = submit(2);
    pass(20);
    EXPECT_FALSE(sink->end);
    EXPECT_EQ(tracker->queued(), 1U);
    EXPECT_EQ(node("p0").credits_used, 0U) << "nobody holds a credit while it waits";
    EXPECT_EQ(node("d0").sequences_given, 0U);
    EXPECT_EQ(d0.counts().running, 0U) << "its grant was given back";
    p0.script().prefill_error.reset();
    pass(300);
    expect_whole(*sink);
    EXPECT_EQ(sink->end->figures.attempts, 1U);
    EXPECT_EQ(sink->end->figures.failovers, 0U);
    EXPECT_TRUE(health.is_well());
    expect_quiet();
    TearDown();
  }
}

TEST_F(HandOnTest, WhatADecodeNodeRefusesIsNoAttempt) {
  start();
  add("p0");
  ScriptedNode& d0 = add("d0", full_batch());
  const auto sink = submit(1);
  pass(1'000);
  EXPECT_FALSE(sink->end);
  EXPECT_GT(d0.counts().reserves, 3U) << "asked again after each heartbeat";
  EXPECT_EQ(probe.reserve_busy.value(), d0.counts().reserves);
  EXPECT_EQ(node("d0").sequences_taken, 0U);
  EXPECT_NE(metrics.to_text().find("baton_request_queue_time_seconds_count 0"), std::string::npos);
  d0.script().max_batch = 8;
  pass(300);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.attempts, 1U);
  EXPECT_GT(sink->end->figures.queue, std::chrono::seconds(1));
  EXPECT_NE(metrics.to_text().find("baton_request_queue_time_seconds_count 1"), std::string::npos);
  EXPECT_EQ(probe.resumed_tokens.value(), 0);
  EXPECT_EQ(node("d0").sequences_taken, 1U);
  expect_quiet();
}

// Its own model's nodes may have changed while it waited: it is bound to none of them yet.
TEST_F(HandOnTest, ARefusedRequestIsBoundToNoWeights) {
  start();
  add("p0");
  add("d0", full_batch());
  const auto sink = submit(1);
  pass(30);
  EXPECT_EQ(tracker->queued(), 1U);
  cluster->remove("d0");
  cluster->remove("p0");
  pass(50);
  for (const char* name : {"p1", "d1"}) {
    cluster->add(with_other_weights(name));
  }
  pass(300);
  expect_whole(*sink);
}

TEST_F(HandOnTest, AGrantThatNobodyWaitsForIsGivenBack) {
  start();
  ScriptedNode& p0 = add("p0");
  NodeScript slow;
  slow.step = milliseconds(20);
  ScriptedNode& d0 = add("d0", slow);
  const auto sink = submit(1);
  pass(30);
  give("d0", 999, 0);  // no such request
  EXPECT_EQ(d0.counts().cancels, 1U);
  give("d0", 1, 7);  // no such attempt
  EXPECT_EQ(d0.counts().cancels, 2U);
  ScriptedNode& d1 = add("d1", slow);
  give("d1", 1, 0);  // not asked
  EXPECT_EQ(d1.counts().cancels, 1U);
  const double stale = probe.stale_events.value();
  give("d0", 1, 0);  // a second time
  EXPECT_EQ(d0.counts().cancels, 2U);
  EXPECT_EQ(probe.stale_events.value(), stale + 1);
  EXPECT_EQ(p0.counts().prefills, 1U);
  pass(500);
  expect_whole(*sink);
  expect_quiet();
}

// A node that has begun cannot take it back as if it had not.
TEST_F(HandOnTest, ARefusalAfterTheFirstTokenIsAFailure) {
  start();
  add("p0");
  NodeScript slow;
  slow.step = milliseconds(20);
  add("d0", slow);
  const auto sink = submit(1);
  pass(50);
  ASSERT_FALSE(sink->tokens.empty());
  wire::TokenFrame frame;
  wire::TokenEvent& event = *frame.add_events();
  event.set_request(1);
  event.set_finish(static_cast<std::uint32_t>(FinishReason::Error));
  event.set_error_code(std::string(to_string(ErrorCode::Busy)));
  event.set_refused(true);
  tracker->on_tokens(node("d0"), frame);
  pass(500);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.attempts, 2U);
  EXPECT_EQ(sink->end->figures.failovers, 1U);
  expect_quiet();
}

// The prefill node dies before the decode node hands the request on.
TEST_F(HandOnTest, ARequestOnItsWayToADeadNodeGoesOnElsewhere) {
  start();
  ScriptedNode& p0 = add("p0");
  NodeScript slow;
  slow.reserve_delay = milliseconds(50);
  add("d0", slow);
  const auto first = submit(1);
  pass(200);
  expect_whole(*first);
  const auto sink = submit(2);
  pass(5);
  add("p1");
  p0.kill();
  pass(300);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.prefill_node, "p1");
  expect_quiet();
}

}  // namespace
}  // namespace baton::gateway
