// Membership, queue and tracker against scripted nodes over channels in memory, on a manual clock.
#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

TEST_F(TrackerTest, GoesThroughBothNodes) {
  start();
  ScriptedNode& prefill = add("p0");
  ScriptedNode& decode = add("d0");
  const auto sink = submit(1);
  pass(50);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "Hello world$");
  EXPECT_EQ(sink->end->finish, FinishReason::Stop);
  EXPECT_EQ(prefill.counts().prefills, 1U);
  EXPECT_EQ(decode.counts().commits, 1U);
  const AnswerFigures& figures = sink->end->figures;
  EXPECT_EQ(figures.prefill_node, "p0");
  EXPECT_EQ(figures.decode_node, "d0");
  EXPECT_EQ(figures.kv_bytes_moved, 1234U);
  EXPECT_EQ(figures.kv_transport, "scripted");
  EXPECT_EQ(figures.cached_tokens, 3U);
  EXPECT_EQ(figures.chunks, 2U);
  EXPECT_EQ(figures.transfer.count(), 700);
  EXPECT_EQ(figures.attempts, 1U);
  expect_quiet();
}

TEST_F(TrackerTest, OneTokenEndsOnThePrefillNode) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0");
  const auto sink = submit(1, 1);
  pass(50);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "H");
  EXPECT_EQ(sink->end->finish, FinishReason::Length);
  EXPECT_EQ(decode.counts().running, 0U);
  expect_quiet();
}

TEST_F(TrackerTest, RepeatedAndLateFirstTokensAreOrdered) {
  start();
  NodeScript script;
  script.repeat_events = true;
  script.first_token_last = true;
  add("p0", script);
  script.tokens_per_event = 3;
  add("d0", script);
  const auto sink = submit(1);
  pass(20);
  EXPECT_EQ(sink->text(), "");
  pass(100);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "Hello world$");
  expect_quiet();
}

TEST_F(TrackerTest, LocalPrefillNeedsNoPrefillNode) {
  start();
  NodeScript script;
  script.local_prefill_max_tokens = 1000;
  add("d0", script);
  const auto sink = submit(1);
  pass(50);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "Hello world$");
  EXPECT_EQ(sink->end->figures.prefill_node, "d0");
  expect_quiet();
}

TEST_F(TrackerTest, NoPairIsUnavailableAtOnce) {
  start();
  add("d0");
  const auto sink = submit(1);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 503);
  EXPECT_GT(sink->end->error->retry_after_s, 0U);
  expect_quiet();
}

TEST_F(TrackerTest, FullQueueIsRefusedAndTheRestIsServedInOrder) {
  TrackerOptions options;
  options.queue_limit = 3;
  start(options);
  NodeScript script;
  script.credits = 1;
  script.prefill_delay = milliseconds(50);
  add("p0", script);
  add("d0");
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    sinks.push_back(submit(id));
  }
  ASSERT_TRUE(sinks[4]->end && sinks[4]->end->error);
  EXPECT_EQ(sinks[4]->end->error->status, 429);
  EXPECT_EQ(sinks[4]->end->error->code, "rate_limit_exceeded");
  EXPECT_GE(sinks[4]->end->error->retry_after_s, 1U);
  pass(70);
  EXPECT_TRUE(sinks[0]->end);
  EXPECT_FALSE(sinks[1]->end);
  pass(60);
  EXPECT_TRUE(sinks[1]->end);
  EXPECT_FALSE(sinks[2]->end);
  pass(500);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(sinks[static_cast<std::size_t>(i)]->end);
    EXPECT_FALSE(sinks[static_cast<std::size_t>(i)]->end->error);
  }
  expect_quiet();
}

TEST_F(TrackerTest, BusyGivesTheCreditBackAndTriesTheNextNode) {
  start();
  add("p0");
  ScriptedNode& first = add("d0", full_batch());
  ScriptedNode& second = add("d1");
  const auto sink = submit(1);
  pass(50);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "Hello world$");
  EXPECT_EQ(first.counts().reserves + second.counts().reserves,
            first.counts().reserves == 0 ? 1U : 2U);
  expect_quiet();
}

TEST_F(TrackerTest, AloneBusyNodeIsAskedAgainAfterItsHeartbeat) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", full_batch());
  const auto sink = submit(1);
  pass(30);
  EXPECT_FALSE(sink->end);
  EXPECT_EQ(tracker->queued(), 1U);
  for (const Node* node : membership->nodes()) {
    EXPECT_EQ(node->credits_used, 0U);  // nobody holds a credit while it waits
  }
  decode.script().max_batch = 8;
  pass(300);
  ASSERT_TRUE(sink->end);
  EXPECT_FALSE(sink->end->error);
  EXPECT_EQ(sink->end->figures.attempts, 1U);
  expect_quiet();
}

TEST_F(TrackerTest, WaitingTooLongIsUnavailable) {
  TrackerOptions options;
  options.queue_timeout = milliseconds(500);
  start(options);
  add("p0");
  add("d0", full_batch());
  const auto sink = submit(1);
  pass(1000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 503);
  EXPECT_EQ(sink->end->error->code, "queue_timeout");
  expect_quiet();
}

TEST_F(TrackerTest, DeadlineEndsOnBothNodes) {
  TrackerOptions options;
  options.request_timeout = milliseconds(1000);
  start(options);
  ScriptedNode& prefill = add("p0");
  NodeScript slow;
  slow.step = milliseconds(400);
  ScriptedNode& decode = add("d0", slow);
  const auto sink = submit(1);
  pass(1500);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 504);
  EXPECT_EQ(prefill.counts().cancels, 1U);
  EXPECT_EQ(decode.counts().cancels, 1U);
  EXPECT_EQ(decode.counts().running, 0U);
  expect_quiet();
}

TEST_F(TrackerTest, CancelReachesBothNodesInEveryPhase) {
  for (const int when : {0, 5, 15, 25, 45}) {
    start();
    NodeScript script;
    script.reserve_delay = milliseconds(10);
    script.prefill_delay = milliseconds(10);
    script.transfer_delay = milliseconds(10);
    script.step = milliseconds(10);
    add("p0", script);
    ScriptedNode& decode = add("d0", script);
    const auto sink = submit(1);
    pass(when);
    tracker->cancel(RequestId{1}, "client gone");
    const auto tokens = sink->tokens.size();
    pass(200);
    EXPECT_FALSE(sink->end) << "nothing goes to a client that has left";
    EXPECT_EQ(sink->tokens.size(), tokens);
    EXPECT_EQ(decode.counts().running, 0U) << when;
    expect_quiet();
    TearDown();
  }
}

TEST_F(TrackerTest, StopWaitsForFiguresWhenWanted) {
  start();
  add("p0");
  NodeScript slow;
  slow.step = milliseconds(20);
  add("d0", slow);
  const auto sink = submit(1);
  pass(50);
  ASSERT_GE(sink->tokens.size(), 2U);
  tracker->stop(RequestId{1}, true);
  EXPECT_FALSE(sink->end);
  pass(5);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->end->finish, FinishReason::Stop);
  EXPECT_EQ(sink->end->figures.kv_bytes_moved, 1234U);
  expect_quiet();
}

TEST_F(TrackerTest, SuspectNodesGetNoNewWork) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0");
  decode.script().heartbeats = false;
  pass(420);
  const auto sink = submit(1);
  pass(30);
  EXPECT_EQ(decode.counts().reserves, 0U);
  decode.script().heartbeats = true;
  pass(300);
  ASSERT_TRUE(sink->end);
  EXPECT_FALSE(sink->end->error);
}

TEST_F(TrackerTest, EventsOfStrangersAreDropped) {
  start();
  ScriptedNode& prefill = add("p0");
  NodeScript slow;
  slow.step = milliseconds(20);
  ScriptedNode& decode = add("d0", slow);
  add("d1", slow);
  const auto sink = submit(1);
  pass(30);
  // A node that has nothing to do with the request, and an old attempt.
  for (const Node* node : membership->nodes()) {
    wire::TokenFrame frame;
    wire::TokenEvent& event = *frame.add_events();
    event.set_request(1);
    event.set_attempt(node->name == "d1" ? 0 : 7);
    event.set_index(0);
    event.add_tokens(88);
    wire::TokenEvent& unknown = *frame.add_events();
    unknown.set_request(999);
    unknown.add_tokens(88);
    tracker->on_tokens(*membership->find(node->handle), frame);
  }
  pass(500);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->text(), "Hello world$");
  EXPECT_EQ(prefill.counts().prefills, 1U);
  EXPECT_LE(decode.counts().reserves, 1U);
  expect_quiet();
}

TEST_F(TrackerTest, BrokenEventsEndTheAttemptNotTheGateway) {
  start();
  add("p0");
  NodeScript slow;
  slow.step = milliseconds(20);
  add("d0", slow);
  const auto sink = submit(1);
  pass(50);
  wire::TokenFrame frame;
  wire::TokenEvent& event = *frame.add_events();
  event.set_request(1);
  event.set_finish(77);
  for (const Node* node : membership->nodes()) {
    tracker->on_tokens(*membership->find(node->handle), frame);
  }
  EXPECT_EQ(probe.bad_events.value(), 2);
  pass(1'000);
  ASSERT_TRUE(sink->end);
  EXPECT_FALSE(sink->end->error);
  EXPECT_EQ(sink->text(), "Hello world$");
  EXPECT_EQ(sink->end->figures.failovers, 1U);
  expect_quiet();
}

TEST_F(TrackerTest, ShutDownEndsEverything) {
  start();
  NodeScript slow;
  slow.credits = 1;
  slow.prefill_delay = milliseconds(10'000);
  add("p0", slow);
  add("d0");
  const auto running = submit(1);
  const auto waiting = submit(2);
  pass(20);
  tracker->shut_down(to_api_error(Error{ErrorCode::Unavailable, "over"}));
  for (const auto& sink : {running, waiting, submit(3)}) {
    ASSERT_TRUE(sink->end && sink->end->error);
    EXPECT_EQ(sink->end->error->status, 503);
  }
  expect_quiet();
}

// ---- membership

TEST_F(TrackerTest, MismatchIsRefusedByName) {
  start();
  add("p0");
  struct Case {
    const char* field;
    std::function<void(ScriptedNodeOptions&)> change;
  };
  const Case cases[] = {
      {"weights_hash", [](ScriptedNodeOptions& o) { o.weights_hash = 99; }},
      {"numerics_hash", [](ScriptedNodeOptions& o) { o.numerics_hash = 99; }},
      {"layout", [](ScriptedNodeOptions& o) { o.layers = 5; }},
      {"token", [](ScriptedNodeOptions& o) { o.token = "wrong"; }},
      {"role", [](ScriptedNodeOptions& o) { o.role = "gateway"; }},
  };
  for (const Case& wrong : cases) {
    ScriptedNodeOptions options;
    options.name = std::string("x-") + wrong.field;
    options.role = "decode";
    options.gateway = kAddress;
    options.token = "secret";
    wrong.change(options);
    ScriptedNode& node = cluster->add(options);
    pass(10);
    EXPECT_FALSE(node.is_up()) << wrong.field;
    ASSERT_TRUE(node.refused()) << wrong.field;
    EXPECT_NE(node.refused()->message.find(wrong.field), std::string::npos)
        << node.refused()->message;
    cluster->remove(options.name);
  }
  EXPECT_EQ(membership->nodes().size(), 1U);
}

TEST_F(TrackerTest, ANewLifeReplacesTheOld) {
  start();
  add("p0");
  add("d0");
  const auto first = membership->nodes()[0]->incarnation;
  // The old process was killed on another host: its connection still looks open here.
  cluster->node("d0").script().heartbeats = false;
  ScriptedNodeOptions options = cluster->node("d0").options();
  testing::ScriptedCluster other(executor, *node_network);
  for (int i = 0; i < 5; ++i) {
    other.next_incarnation();
  }
  other.add(options);
  pass(5);
  EXPECT_EQ(membership->nodes()[0]->incarnation, first);  // it may be alive yet
  for (int i = 0; i < 3'000 && membership->stats().replaced == 0; ++i) {
    pass(1);  // no further: the old process dials again soon
  }
  ASSERT_EQ(membership->nodes().size(), 2U);
  EXPECT_NE(membership->nodes()[0]->incarnation, first);
  EXPECT_EQ(membership->stats().replaced, 1U);
}

TEST_F(TrackerTest, ASecondNodeOfOneNameIsRefusedWhileTheFirstIsAlive) {
  start();
  add("p0");
  add("d0");
  testing::ScriptedCluster other(executor, *node_network);
  for (int i = 0; i < 5; ++i) {
    other.next_incarnation();
  }
  ScriptedNode& second = other.add(cluster->node("d0").options());
  pass(5'000);
  EXPECT_FALSE(second.is_up());
  ASSERT_TRUE(second.refused());
  EXPECT_NE(second.refused()->message.find("names are unique"), std::string::npos);
  EXPECT_EQ(membership->stats().replaced, 0U);
  EXPECT_EQ(membership->stats().lost, 0U);
}

TEST_F(TrackerTest, ASecondNodeWithOneAddressIsRefusedWhileTheFirstIsAlive) {
  start();
  add("p0");
  add("d0");
  ScriptedNodeOptions options = options_of("d1");
  options.address = "d0.test:1";
  ScriptedNode& second = cluster->add(options);
  pass(5'000);
  EXPECT_FALSE(second.is_up());
  ASSERT_TRUE(second.refused());
  for (const char* said : {"control_address", "'d0'", "d0.test:1", "advertise of decode.pool"}) {
    EXPECT_NE(second.refused()->message.find(said), std::string::npos) << second.refused()->message;
  }
  EXPECT_EQ(membership->stats().lost, 0U);
  // One whose process is gone leaves its address to others.
  cluster->node("d0").kill();
  pass(5'000);
  EXPECT_TRUE(second.is_up());
}

TEST_F(TrackerTest, ANodeComesBackAtItsOwnAddress) {
  start();
  add("p0");
  add("d0").kill();
  cluster->node("d0").start();
  pass(50);
  EXPECT_TRUE(cluster->node("d0").is_up());
  // Its host was cut off: the connection looks open until heartbeats are missed.
  cluster->node("d0").script().heartbeats = false;
  ScriptedNodeOptions renamed = options_of("d1");
  renamed.address = "d0.test:1";
  ScriptedNode& second = cluster->add(renamed);
  for (int i = 0; i < 3'000 && !second.is_up(); ++i) {
    pass(1);
  }
  EXPECT_TRUE(second.is_up());
}

TEST_F(TrackerTest, AModelMayChangeOnceItsNodesAreGone) {
  start();
  add("p0");
  cluster->remove("p0");
  pass(50);
  EXPECT_TRUE(membership->models().empty());
  ScriptedNode& node = cluster->add(with_other_weights("p0"));
  pass(50);
  EXPECT_TRUE(node.is_up());
}

}  // namespace
}  // namespace baton::gateway
