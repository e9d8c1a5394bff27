#include <gmock/gmock.h>

#include <set>

#include "gateway/cluster/circuit_breaker.h"
#include "gateway/cluster/route_health.h"
#include "gateway/status_json.h"
#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

using ::testing::HasSubstr;

TimePoint at(int ms) {
  return TimePoint{} + milliseconds(ms);
}

// ---- one breaker

struct BreakerTest : ::testing::Test {
  // Opens at 10 ms, for 100 ms.
  void open() {
    EXPECT_FALSE(breaker.failed(limits, at(1), at(10)));
    EXPECT_TRUE(breaker.failed(limits, at(2), at(10)));
  }
  const BreakerLimits limits{2, milliseconds(100), milliseconds(300)};
  CircuitBreaker breaker;
};

TEST_F(BreakerTest, OpensAfterFaultsInARowOnly) {
  EXPECT_FALSE(breaker.failed(limits, at(1), at(2)));
  EXPECT_FALSE(breaker.served(at(1), at(3)));
  EXPECT_FALSE(breaker.failed(limits, at(3), at(4)));
  EXPECT_TRUE(breaker.takes(at(4)));
  EXPECT_TRUE(breaker.failed(limits, at(3), at(5)));
  EXPECT_FALSE(breaker.takes(at(5)));
  EXPECT_EQ(breaker.state(at(104)), BreakerState::Open);
  EXPECT_EQ(breaker.state(at(105)), BreakerState::HalfOpen);
}

TEST_F(BreakerTest, OneTriesAndItsSuccessCloses) {
  open();
  auto token = std::make_shared<int>();
  EXPECT_TRUE(breaker.takes(at(110)));
  breaker.try_with(token);
  EXPECT_FALSE(breaker.takes(at(110))) << "a second one beside it";
  EXPECT_TRUE(breaker.served(at(110), at(120)));
  EXPECT_EQ(breaker.state(at(120)), BreakerState::Closed);
  EXPECT_TRUE(breaker.takes(at(120)));
}

TEST_F(BreakerTest, ATryThatEndsWithoutAnOutcomeGivesItsPlaceBack) {
  open();
  auto token = std::make_shared<int>();
  breaker.try_with(token);
  EXPECT_FALSE(breaker.takes(at(110)));
  token.reset();
  EXPECT_TRUE(breaker.takes(at(110)));
}

TEST_F(BreakerTest, EachTryThatFailsDoublesThePauseUpToTheLongest) {
  open();
  int now = 10;
  for (const int pause : {100, 200, 300, 300}) {
    EXPECT_EQ(breaker.state(at(now + pause - 1)), BreakerState::Open) << pause;
    now += pause;
    EXPECT_EQ(breaker.state(at(now)), BreakerState::HalfOpen) << pause;
    EXPECT_TRUE(breaker.failed(limits, at(now), at(now)));
  }
}

TEST_F(BreakerTest, WhatBeganBeforeSaysNothing) {
  open();
  EXPECT_FALSE(breaker.served(at(9), at(20))) << "begun before it opened";
  EXPECT_FALSE(breaker.failed(limits, at(9), at(111)));
  EXPECT_EQ(breaker.state(at(110)), BreakerState::HalfOpen) << "the pause was not doubled";
  EXPECT_TRUE(breaker.served(at(110), at(115)));
  EXPECT_FALSE(breaker.failed(limits, at(112), at(116)));
  EXPECT_EQ(breaker.faults(), 0U);
}

TEST_F(BreakerTest, FaultsOfALastResortDoNotProlongIt) {
  open();
  EXPECT_FALSE(breaker.failed(limits, at(50), at(60)));
  EXPECT_EQ(breaker.state(at(110)), BreakerState::HalfOpen);
}

TEST_F(BreakerTest, SoonAfterItGoesOnDoublingLaterItBeginsAnew) {
  open();
  EXPECT_TRUE(breaker.served(at(110), at(110)));
  breaker.failed(limits, at(120), at(120));
  EXPECT_TRUE(breaker.failed(limits, at(120), at(120)));
  EXPECT_EQ(breaker.open_until(), at(320));
  EXPECT_TRUE(breaker.served(at(320), at(320)));
  breaker.failed(limits, at(1000), at(1000));
  EXPECT_TRUE(breaker.failed(limits, at(1000), at(1000)));
  EXPECT_EQ(breaker.open_until(), at(1100));
}

// ---- whom it speaks against

TEST(RouteHealth, NeitherClientsNorLoadOpenAnything) {
  for (const ErrorCode code : {ErrorCode::InvalidArgument,
                               ErrorCode::ContextTooLong,
                               ErrorCode::NotFound,
                               ErrorCode::Unauthorized,
                               ErrorCode::Cancelled,
                               ErrorCode::Busy,
                               ErrorCode::NoBlocks,
                               ErrorCode::Preempted,
                               ErrorCode::Draining,
                               ErrorCode::Unavailable}) {
    for (const bool is_refusal : {false, true}) {
      EXPECT_EQ(blamed_for(code, is_refusal, true), Blamed::Nobody) << to_string(code);
    }
  }
  for (const ErrorCode code : {ErrorCode::Internal, ErrorCode::OutOfMemory, ErrorCode::IoError}) {
    EXPECT_EQ(blamed_for(code, false, true), Blamed::Node) << to_string(code);
  }
  EXPECT_EQ(blamed_for(ErrorCode::PeerDead, false, true), Blamed::Pair);
  EXPECT_EQ(blamed_for(ErrorCode::Timeout, false, true), Blamed::Pair);
  EXPECT_EQ(blamed_for(ErrorCode::Timeout, true, true), Blamed::Node);
  EXPECT_EQ(blamed_for(ErrorCode::GrantRevoked, false, false), Blamed::Node);
}

TEST(RouteHealth, TripsOfWhatIsHereAreCountedFromZero) {
  const Logger log = Logger::silent();
  Metrics metrics;
  RouteHealth health(log, &metrics, {1, milliseconds(100), milliseconds(100)}, [] {});
  const NodeLife p{"p", Incarnation{1}};
  const NodeLife d{"d", Incarnation{2}};
  health.started(p);
  EXPECT_THAT(metrics.to_text(),
              HasSubstr("baton_circuit_breaker_trips_total{node=\"p\",peer=\"\"} 0"));
  health.verified({p, d});
  EXPECT_THAT(metrics.to_text(),
              HasSubstr("baton_circuit_breaker_trips_total{node=\"p\",peer=\"d\"} 0"));
  health.failed({p, d}, at(0), at(0));
  EXPECT_THAT(metrics.to_text(),
              HasSubstr("baton_circuit_breaker_trips_total{node=\"p\",peer=\"d\"} 1"));
}

TEST(RouteHealth, CountsOnlyWhatIsThere) {
  const Logger log = Logger::silent();
  Metrics metrics;
  RouteHealth health(log, &metrics, {1, milliseconds(100), milliseconds(100)}, [] {});
  const NodeLife p{"p", Incarnation{1}};
  const NodeLife d{"d", Incarnation{2}};
  const NodeLife e{"e", Incarnation{3}};
  for (const RouteHealth::Part& part :
       {RouteHealth::Part{p, d}, RouteHealth::Part{p, e}, RouteHealth::Part{d, {}}}) {
    health.failed(part, at(0), at(0));
    EXPECT_FALSE(health.takes(part, at(1)));
  }
  EXPECT_TRUE(health.takes({p, {}}, at(1))) << "a pair's fault is not the node's";
  const auto text = [&] { return metrics.to_text(); };
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breakers_open{of=\"pair\"} 2"));
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breakers_open{of=\"node\"} 1"));
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breaker_trips_total{node=\"p\",peer=\"d\"} 1"));
  health.left(e);
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breakers_open{of=\"pair\"} 1"));
  health.started({"d", Incarnation{9}});
  EXPECT_TRUE(health.is_well()) << "another life";
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breakers_open{of=\"pair\"} 0"));
  EXPECT_THAT(text(), HasSubstr("baton_circuit_breakers_open{of=\"node\"} 0"));
  health.failed({p, {}}, at(10), at(10));
  health.sweep(at(200));
  EXPECT_FALSE(health.is_well());
  health.sweep(at(211));
  EXPECT_TRUE(health.is_well()) << "nothing was heard of it for long";
}

// ---- requests

class BreakingTest : public TrackerTest {
 protected:
  // Requests one after another, `ms` apart.
  std::vector<std::shared_ptr<RecordingSink>> series(int count, int ms = 60) {
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < count; ++i) {
      sinks.push_back(submit(next_id_++));
      pass(ms);
    }
    return sinks;
  }
  void expect_whole(const std::vector<std::shared_ptr<RecordingSink>>& sinks) {
    for (const auto& sink : sinks) {
      ASSERT_TRUE(sink->end);
      EXPECT_FALSE(sink->end->error);
      EXPECT_EQ(sink->text(), "Hello world$");
    }
  }
  bool is_open(const std::string& node, const std::string& decode = "") {
    for (const auto& breaker : health.breakers(executor.now())) {
      if (breaker.part.node.name == node && breaker.part.peer.name == decode) {
        return breaker.state != BreakerState::Closed;
      }
    }
    return false;
  }
  std::uint64_t next_id_ = 1;
};

TEST_F(BreakingTest, ABrokenPairIsKeptOutAndItsNodesServeWithOthers) {
  start();
  NodeScript cut;
  cut.unreachable = {"d0"};
  ScriptedNode& p0 = add("p0", cut);
  add("p1");
  ScriptedNode& d0 = add("d0");
  add("d1");
  expect_whole(series(30, 20));
  ASSERT_TRUE(is_open("p0", "d0"));
  EXPECT_FALSE(is_open("p0"));
  EXPECT_FALSE(is_open("d0"));
  EXPECT_THAT(status_json("g", true, *membership, health, *tracker, "[]", executor.now()),
              HasSubstr("\"breakers\":[{\"node\":\"p0\",\"decode\":\"d0\",\"state\":\"open\""));
  // While it is open nobody fails; both its nodes work with others.
  const auto prefills = p0.counts().prefills;
  const auto commits = d0.counts().commits;
  const auto sinks = series(15, 20);
  expect_whole(sinks);
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->end->figures.failovers, 0U);
  }
  EXPECT_GT(p0.counts().prefills, prefills);
  EXPECT_GT(d0.counts().commits, commits);
  // The way is mended: one request tries it, and all is as before.
  p0.script().unreachable.clear();
  pass(3'000);
  expect_whole(series(40, 20));
  EXPECT_FALSE(is_open("p0", "d0"));
  expect_quiet();
}

TEST_F(BreakingTest, OneRequestAtATimeTries) {
  start();
  NodeScript cut;
  cut.unreachable = {"d0"};
  cut.prefill_delay = milliseconds(40);
  ScriptedNode& p0 = add("p0", cut);
  add("p1");
  add("d0");
  series(40, 200);
  ASSERT_TRUE(is_open("p0", "d0"));
  pass(60'000);  // half-open
  const auto before = p0.counts().prefills;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 12; ++i) {
    sinks.push_back(submit(next_id_++));
  }
  pass(30);
  EXPECT_LE(p0.counts().prefills - before, 1U);
  pass(500);
  expect_whole(sinks);
}

TEST_F(BreakingTest, ATryWhoseClientLeavesDoesNotKeepThePartOut) {
  start();
  NodeScript cut;
  cut.unreachable = {"d0"};
  ScriptedNode& p0 = add("p0", cut);
  add("d0");
  const auto waiting = series(2, 500);
  for (const std::uint64_t id : {1, 2}) {
    tracker->cancel(RequestId{id}, "the client has left");
  }
  ASSERT_TRUE(is_open("p0", "d0"));
  p0.script().unreachable.clear();
  p0.script().prefill_delay = milliseconds(100);
  pass(60'000);
  const auto lost = submit(next_id_);
  pass(20);
  tracker->cancel(RequestId{next_id_++}, "the client has left");
  const auto next = series(1, 300);
  expect_whole(next);
  EXPECT_FALSE(is_open("p0", "d0"));
  expect_quiet();
}

TEST_F(BreakingTest, TheLastPairIsTriedAllTheSame) {
  start();
  NodeScript cut;
  cut.unreachable = {"d0"};
  ScriptedNode& p0 = add("p0", cut);
  add("d0");
  const auto sinks = series(2, 300);
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->end);
    EXPECT_TRUE(sink->end->error) << "faults are bounded";
  }
  ASSERT_TRUE(is_open("p0", "d0"));
  p0.script().unreachable.clear();
  expect_whole(series(3));  // not one of them is a 503
  EXPECT_FALSE(is_open("p0", "d0"));
}

TEST_F(BreakingTest, ClientErrorsOpenNothing) {
  start();
  NodeScript picky;
  picky.reserve_error = Error{ErrorCode::InvalidArgument, "scripted"};
  add("p0");
  ScriptedNode& d0 = add("d0", picky);
  for (const auto& sink : series(20, 20)) {
    ASSERT_TRUE(sink->end && sink->end->error);
  }
  EXPECT_TRUE(health.is_well());
  d0.script().reserve_error.reset();
  expect_whole(series(1));
}

TEST_F(BreakingTest, ErrorsOfItsOwnOpenANode) {
  start();
  add("p0");
  NodeScript faulty;
  faulty.reserve_error = Error{ErrorCode::Internal, "scripted"};
  ScriptedNode& d0 = add("d0", faulty);
  add("d1");
  int failed = 0;
  for (const auto& sink : series(40, 20)) {
    ASSERT_TRUE(sink->end);
    failed += sink->end->error ? 1 : 0;
  }
  EXPECT_EQ(failed, 3) << "then it gets no more";
  EXPECT_EQ(d0.counts().reserves, 3U);
}

}  // namespace
}  // namespace baton::gateway
