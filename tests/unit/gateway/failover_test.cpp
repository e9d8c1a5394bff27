// Requests whose nodes die, hang, drain, preempt them or report errors: the answer goes on where it
// was, or ends with a clean error.
#include "gateway/requests/failover.h"

#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

constexpr const char* kText = "Hello world$";  // of the scripted nodes, with the stop token

class FailoverTest : public TrackerTest {
 protected:
  void expect_whole(const RecordingSink& sink, const std::string& text = kText) {
    ASSERT_TRUE(sink.end);
    EXPECT_FALSE(sink.end->error) << sink.end->error->message;
    EXPECT_EQ(sink.text(), text);
    expect_quiet();
  }
  double failovers(FailoverReason reason) const {
    return probe.failovers[static_cast<std::size_t>(reason)].value();
  }
};

NodeScript step_of(int ms) {
  NodeScript script;
  script.step = milliseconds(ms);
  return script;
}

NodeScript error_at(std::uint32_t index, ErrorCode code, std::uint32_t times = 1) {
  NodeScript script;
  script.decode_error_at = index;
  script.decode_error = Error{code, "scripted"};
  script.decode_errors = times;
  return script;
}

TEST_F(FailoverTest, DecodeDiesAtAnyIndex) {
  for (std::uint32_t index = 1; index <= 10; ++index) {
    for (const std::uint32_t per_event : {1U, 3U}) {
      start();
      add("p0");
      NodeScript dying;
      dying.die_at = index;
      dying.tokens_per_event = per_event;
      add("d0", dying);
      GenerateRequest wanted = request(index);
      wanted.sampling.num_logprobs = 0;
      const auto sink = submit(wanted);
      add("d1");  // comes when d0 has died already
      pass(100);
      expect_whole(*sink);
      EXPECT_EQ(sink->logprobs.size(), sink->tokens.size()) << "one for each token";
      EXPECT_EQ(sink->end->finish, FinishReason::Stop);
      EXPECT_EQ(sink->end->figures.decode_node, "d1");
      EXPECT_EQ(sink->end->figures.attempts, 2U);
      EXPECT_EQ(sink->end->figures.failovers, 1U);
      EXPECT_EQ(sink->end->figures.cached_tokens, 3U);
      const GenerateRequest& resumed = cluster->node("d1").seen().back();
      EXPECT_EQ(resumed.id, wanted.id);
      EXPECT_EQ(resumed.attempt, Attempt{1});
      EXPECT_EQ(resumed.sampling.seed, wanted.sampling.seed);
      EXPECT_EQ(resumed.output,
                std::vector<TokenId>(
                    sink->tokens.begin(),
                    sink->tokens.begin() + static_cast<std::ptrdiff_t>(resumed.output.size())));
      EXPECT_GE(resumed.output.size(), 1U);
      TearDown();
    }
  }
  EXPECT_EQ(failovers(FailoverReason::NodeDied), 20);
  EXPECT_GT(probe.resumed_tokens.value(), 0);
}

TEST_F(FailoverTest, MaxTokensCountsAsAWhole) {
  start();
  add("p0");
  NodeScript dying;
  dying.die_at = 4;
  add("d0", dying);
  const auto sink = submit(1, 7);
  add("d1");
  pass(100);
  expect_whole(*sink, "Hello w");
  EXPECT_EQ(sink->end->finish, FinishReason::Length);
  ASSERT_EQ(sink->end->figures.lost.size(), 1U) << "what the first node did is told, too";
  EXPECT_TRUE(sink->end->figures.lost[0].was_decoding);
  EXPECT_EQ(sink->end->figures.lost[0].node, "d0");
}

TEST_F(FailoverTest, ResumeOfTheLastTokenEndsOnThePrefillNode) {
  start();
  add("p0");
  NodeScript dying;
  dying.die_at = 4;
  add("d0", dying);
  const auto sink = submit(1, 5);
  ScriptedNode& other = add("d1");
  pass(100);
  expect_whole(*sink, "Hello");
  EXPECT_EQ(sink->end->finish, FinishReason::Length);
  EXPECT_EQ(other.counts().running, 0U);
}

TEST_F(FailoverTest, PrefillDiesBeforeTheFirstToken) {
  start();
  NodeScript dying;
  dying.die_on_prefill = true;
  add("p0", dying);
  ScriptedNode& decode = add("d0");
  const auto sink = submit(1);
  add("p1");
  pass(100);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.prefill_node, "p1");
  ASSERT_EQ(sink->end->figures.lost.size(), 1U);
  EXPECT_FALSE(sink->end->figures.lost[0].was_decoding);
  EXPECT_EQ(sink->end->figures.lost[0].node, "p0");
  EXPECT_EQ(decode.counts().running, 0U);
}

TEST_F(FailoverTest, PrefillDiesBetweenFirstTokenAndCommit) {
  start();
  NodeScript dying;
  dying.die_after_first = true;
  add("p0", dying);
  ScriptedNode& decode = add("d0");
  const auto sink = submit(1);
  pass(5);
  EXPECT_EQ(sink->text(), "H");
  add("p1");
  pass(100);
  expect_whole(*sink);
  EXPECT_EQ(decode.seen().back().output, testing::byte_tokens("H"));
  EXPECT_EQ(decode.counts().cancels, 1U) << "the first attempt's grant is given back";
}

TEST_F(FailoverTest, PrefillDeathAfterDecodeHasBegunIsNotNoticed) {
  start();
  ScriptedNode& prefill = add("p0");
  add("d0", step_of(20));
  const auto sink = submit(1);
  pass(70);
  ASSERT_GE(sink->tokens.size(), 2U);
  prefill.kill();
  pass(500);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.attempts, 1U);
}

TEST_F(FailoverTest, BothNodesDie) {
  start();
  ScriptedNode& prefill = add("p0");
  ScriptedNode& decode = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  ASSERT_GE(sink->tokens.size(), 3U);
  decode.kill();
  prefill.kill();
  pass(500);
  EXPECT_FALSE(sink->end) << "it waits for a pair";
  add("p1");
  add("d1");
  pass(200);
  expect_whole(*sink);
}

TEST_F(FailoverTest, StoppedNodeIsLeftAfterItsHeartbeatsAndUsedAgain) {
  start();
  add("p0");
  ScriptedNode& stopped = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  const auto before = sink->tokens.size();
  ASSERT_GE(before, 3U);
  stopped.freeze();
  add("d1");
  pass(400);
  EXPECT_EQ(sink->tokens.size(), before) << "a busy machine is not a dead one";
  pass(400);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.decode_node, "d1");
  EXPECT_EQ(failovers(FailoverReason::NodeStalled), 1);
  stopped.thaw();
  pass(200);
  EXPECT_EQ(membership->nodes().size(), 3U);
  cluster->remove("d1");
  const auto again = submit(2);
  pass(500);
  expect_whole(*again);
  EXPECT_EQ(again->end->figures.decode_node, "d0");
}

TEST_F(FailoverTest, ATokenOutsideOfTheVocabularyIsTheNodesFault) {
  start();
  add("p0");
  add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  const std::string before = sink->text();
  wire::TokenFrame frame;
  wire::TokenEvent& event = *frame.add_events();
  event.set_request(1);
  event.set_index(static_cast<std::uint32_t>(sink->tokens.size()));
  event.add_tokens(1 << 30);
  for (const Node* node : membership->nodes()) {
    if (node->name == "d0") {
      tracker->on_tokens(*membership->find(node->handle), frame);
      break;
    }
  }
  EXPECT_EQ(sink->text(), before) << "none of it is given to the client";
  add("d1");
  pass(500);
  expect_whole(*sink);
  EXPECT_EQ(sink->end->figures.decode_node, "d1") << "the node is avoided, not its pair alone";
  EXPECT_EQ(failovers(FailoverReason::Peer), 1);
}

TEST_F(FailoverTest, ANodeThatBreaksTheWireAgainAndAgainEndsTheRequest) {
  start();
  add("p0");
  add("d0", error_at(4, ErrorCode::ProtocolError, 1000));
  const auto sink = submit(1);
  pass(3'000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 502);
  EXPECT_EQ(sink->end->figures.attempts, FailoverLimits{}.max_faults);
  expect_quiet();
}

TEST_F(FailoverTest, TokensOfAnOlderAttemptAreDropped) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  decode.kill();
  add("d1", step_of(10));
  pass(30);
  for (const Node* node : membership->nodes()) {
    wire::TokenFrame frame;
    wire::TokenEvent& event = *frame.add_events();
    event.set_request(1);
    event.set_attempt(0);
    event.set_index(static_cast<std::uint32_t>(sink->tokens.size()));
    event.add_tokens('X');
    tracker->on_tokens(*membership->find(node->handle), frame);
  }
  pass(500);
  expect_whole(*sink);
}

TEST_F(FailoverTest, RetryableErrorsOfEveryKindGoOnElsewhere) {
  for (const ErrorCode code : {ErrorCode::Busy,
                               ErrorCode::NoBlocks,
                               ErrorCode::PeerDead,
                               ErrorCode::PeerStalled,
                               ErrorCode::StaleIncarnation,
                               ErrorCode::GrantRevoked,
                               ErrorCode::ChecksumMismatch,
                               ErrorCode::ProtocolError,
                               ErrorCode::Timeout,
                               ErrorCode::Unavailable,
                               ErrorCode::Preempted,
                               ErrorCode::Draining}) {
    start();
    add("p0");
    add("p1");
    add("d0", error_at(4, code));
    const auto sink = submit(1);
    add("d1");
    pass(500);
    expect_whole(*sink);
    EXPECT_EQ(sink->end->figures.failovers, 1U) << to_string(code);
    TearDown();
  }
}

// Nodes say to each other where they are; clients are not told.
TEST_F(FailoverTest, NoPlaceOfTheClusterReachesAClient) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    start();
    NodeScript script;
    script.prefill_late_error = Error{
        static_cast<ErrorCode>(i),
        "10.1.2.3:7001 did not answer, nor [fd00::7]:7001 or node-7.internal:7001, of /srv/secret"};
    add("p0", script);
    add("d0");
    const auto sink = submit(1);
    pass(120'000);
    ASSERT_TRUE(sink->end && sink->end->error) << i;
    EXPECT_FALSE(sink->end->error->message.empty()) << i;
    for (const char* inside : {"10.1.2.3", "7001", "fd00", "node-7", "/srv", "secret"}) {
      EXPECT_EQ(sink->end->error->message.find(inside), std::string::npos)
          << to_string(static_cast<ErrorCode>(i)) << ": " << sink->end->error->message;
    }
    TearDown();
  }
}

// Each of these by itself gives a sentence away; one about the request is kept.
TEST(ClientError, KeepsWhatSpeaksOfTheRequest) {
  const auto told = [](std::string message) {
    return to_client_error(Error{ErrorCode::InvalidArgument, std::move(message)}).message;
  };
  for (const char* kept : {"min_tokens 7 is above max_tokens 5 (see a/b)",
                           "node decode-0 takes no grammars: 1.5.2",
                           "token 9: not in the vocabulary"}) {
    EXPECT_EQ(told(kept), kept);
  }
  for (const char* place :
       {"10.1.2.3", "host:71", "[::1]:71", "cannot open /etc/x", "\"/etc/x\""}) {
    EXPECT_EQ(told(place), "The request is not one that the model's nodes can serve.") << place;
  }
}

TEST_F(FailoverTest, ErrorsThatARepeatCannotHelpEndTheStream) {
  start();
  add("p0");
  add("d0", error_at(4, ErrorCode::Internal));
  add("d1", error_at(4, ErrorCode::Internal));
  const auto sink = submit(1);
  pass(100);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 500);
  EXPECT_EQ(sink->text(), "Hell");
  expect_quiet();
}

TEST_F(FailoverTest, TheOnlyPairIsUsedAgain) {
  start();
  add("p0");
  add("d0", error_at(4, ErrorCode::GrantRevoked));
  const auto sink = submit(1);
  pass(200);
  expect_whole(*sink);
}

TEST_F(FailoverTest, FaultsAreBounded) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", error_at(4, ErrorCode::Timeout, 1000));
  const auto sink = submit(1);
  pass(3'000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(decode.counts().reserves, FailoverLimits{}.max_faults);
  expect_quiet();
}

TEST_F(FailoverTest, ARequestThatKillsNodesIsStopped) {
  start();
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  for (const char* name : {"d0", "d1", "d2", "d3", "d4"}) {
    add(name, dying);
  }
  const auto sink = submit(1);
  pass(1'000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 502);
  EXPECT_EQ(sink->text().substr(0, 5), "Hello");
  EXPECT_EQ(membership->stats().lost, FailoverLimits{}.max_node_losses);
  EXPECT_EQ(membership->nodes().size(), 3U);
  expect_quiet();
}

TEST_F(FailoverTest, MaxNodeLossesIsASetting) {
  TrackerOptions options;
  options.failover.max_node_losses = 1;
  start(options);
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  add("d0", dying);
  const auto sink = submit(1);
  add("d1");
  pass(100);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->text(), "Hello");
  expect_quiet();
}

TEST_F(FailoverTest, ADeathThatAPeerToldFirstCountsAsADeath) {
  TrackerOptions options;
  options.failover.max_node_losses = 1;
  start(options);
  NodeScript late;
  late.prefill_late_error = Error{ErrorCode::PeerDead, "the decode node is gone"};
  add("p0", late);
  ScriptedNode& decode = add("d0", error_at(1, ErrorCode::PeerDead));
  cluster->node("p0").script().prefill_late_error.reset();
  const auto sink = submit(1);
  pass(2);  // d0 has blamed p0
  EXPECT_FALSE(sink->end);
  EXPECT_EQ(tracker->queued(), 1U);
  cluster->node("p0").kill();
  executor.run_until_idle();
  ASSERT_TRUE(sink->end && sink->end->error) << "it was the one death that it may cause";
  EXPECT_EQ(decode.counts().running, 0U);
  expect_quiet();
}

TEST_F(FailoverTest, ProgressClearsTheSuspicion) {
  start();
  add("p0");
  NodeScript dying;
  dying.answer = [](const GenerateRequest&) { return std::vector<TokenId>(200, 'x'); };
  cluster->node("p0").script().answer = dying.answer;
  for (std::uint32_t i = 0; i < 5; ++i) {
    dying.die_at = 30 + 33 * i;  // each gives more tokens than the count forgives
    add(std::string{'d', static_cast<char>('0' + i)}, dying);
  }
  dying.die_at.reset();
  add("d9", dying);
  const auto sink = submit(1, 180);
  pass(1'000);
  expect_whole(*sink, std::string(180, 'x'));
}

TEST_F(FailoverTest, DrainHandsOverAndTheNodeGetsNothingNew) {
  start();
  add("p0");
  ScriptedNode& drained = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  ASSERT_GE(sink->tokens.size(), 3U);
  ScriptedNode& other = add("d1");
  EXPECT_FALSE(membership->drain("nobody", milliseconds(1000)));
  EXPECT_TRUE(membership->drain("d0", milliseconds(1000)));
  pass(100);
  expect_whole(*sink);
  EXPECT_EQ(drained.counts().drains, 1U);
  EXPECT_EQ(failovers(FailoverReason::Draining), 1);
  const auto again = submit(2);
  pass(300);
  expect_whole(*again);
  EXPECT_EQ(other.counts().reserves, 2U);
  EXPECT_EQ(drained.counts().reserves, 1U);
}

TEST_F(FailoverTest, DrainingPrefillHandsOverToo) {
  start();
  NodeScript slow;
  slow.prefill_delay = milliseconds(50);
  ScriptedNode& drained = add("p0", slow);
  add("d0");
  const auto sink = submit(1);
  pass(20);
  add("p1");
  EXPECT_TRUE(membership->drain("p0", milliseconds(1000)));
  pass(200);
  expect_whole(*sink);
  EXPECT_EQ(drained.counts().prefills, 1U);
  EXPECT_EQ(sink->end->figures.prefill_node, "p1");
}

TEST_F(FailoverTest, PreemptedTwiceItReservesAll) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", error_at(3, ErrorCode::Preempted, 2));
  const auto sink = submit(1);
  pass(500);
  expect_whole(*sink);
  EXPECT_EQ(decode.counts().reserves, 3U);
  EXPECT_EQ(decode.counts().full_reserves, 1U) << "the third";
  EXPECT_EQ(failovers(FailoverReason::Preempted), 2);
}

TEST_F(FailoverTest, HandOversWithoutProgressAreBounded) {
  start();
  add("p0");
  NodeScript stuck = error_at(1, ErrorCode::Preempted, 1'000);
  stuck.local_prefill_max_tokens = 4096;  // so that not even the first token comes
  stuck.decode_error_at = 0;
  ScriptedNode& decode = add("d0", stuck);
  const auto sink = submit(1);
  pass(10'000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(decode.counts().reserves, FailoverLimits{}.max_handovers);
  expect_quiet();
}

TEST_F(FailoverTest, NoPairLeftIsAnErrorNeverASilentEnd) {
  TrackerOptions options;
  options.queue_timeout = milliseconds(2'000);
  start(options);
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  add("d0", dying);
  const auto sink = submit(1);
  pass(1'500);
  EXPECT_FALSE(sink->end);
  pass(1'000);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 503);
  EXPECT_EQ(sink->end->error->message.find("d0"), std::string::npos) << "node names stay inside";
  EXPECT_EQ(sink->text(), "Hello");
  expect_quiet();
}

TEST_F(FailoverTest, APairThatReturnsGoesOn) {
  start();
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  add("d0", dying);
  const auto sink = submit(1);
  pass(20'000);
  EXPECT_FALSE(sink->end);
  add("d0");  // started anew
  pass(100);
  expect_whole(*sink);
}

TEST_F(FailoverTest, NewRequestsWaitWhileNodesMayBeRestarting) {
  start();
  add("p0");
  add("d0");
  cluster->remove("p0");
  pass(10);
  const auto patient = submit(1);
  pass(1'000);
  EXPECT_FALSE(patient->end);
  add("p0");
  pass(100);
  expect_whole(*patient);
  cluster->remove("p0");
  pass(10);
  const auto late = submit(2);
  pass(static_cast<int>(TrackerOptions{}.restart_wait.count()) + 200);
  ASSERT_TRUE(late->end && late->end->error);
  EXPECT_EQ(late->end->error->status, 503);
  const auto after = submit(3);
  ASSERT_TRUE(after->end && after->end->error) << "by now nobody restarts: refused at once";
  expect_quiet();
}

TEST_F(FailoverTest, DeadlineEndsAResumedRequest) {
  TrackerOptions options;
  options.request_timeout = milliseconds(1'000);
  start(options);
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  add("d0", dying);
  const auto sink = submit(1);
  pass(1'200);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 504);
  expect_quiet();
}

TEST_F(FailoverTest, ANodeThatTellsOfTheDeadlineFirstStartsNoNewAttempt) {
  TrackerOptions options;
  options.request_timeout = milliseconds(250);
  options.sweep = milliseconds(1'000);
  start(options);
  add("p0");
  ScriptedNode& decode = add("d0", step_of(1'000));
  const auto sink = submit(1);
  pass(300);
  EXPECT_FALSE(sink->end);
  wire::TokenFrame frame;
  wire::TokenEvent& event = *frame.add_events();
  event.set_request(1);
  event.set_finish(static_cast<std::uint32_t>(FinishReason::Error));
  event.set_error_code("timeout");
  tracker->on_tokens(*membership->find(membership->handle_of("d0")), frame);
  ASSERT_TRUE(sink->end && sink->end->error);
  EXPECT_EQ(sink->end->error->status, 504);
  pass(100);
  EXPECT_EQ(decode.counts().reserves, 1U);
  expect_quiet();
}

TEST_F(FailoverTest, AStopBetweenTwoAttemptsEndsAtOnce) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  decode.kill();
  pass(10);
  EXPECT_EQ(tracker->queued(), 1U);
  tracker->stop(RequestId{1}, true);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->end->finish, FinishReason::Stop);
  expect_quiet();
}

TEST_F(FailoverTest, ACancelBetweenTwoAttemptsLeavesNothing) {
  start();
  add("p0");
  ScriptedNode& decode = add("d0", step_of(10));
  const auto sink = submit(1);
  pass(45);
  decode.kill();
  pass(10);
  tracker->cancel(RequestId{1}, "client gone");
  ScriptedNode& other = add("d1");
  pass(100);
  EXPECT_FALSE(sink->end);
  EXPECT_EQ(other.counts().reserves, 0U);
  expect_quiet();
}

TEST_F(FailoverTest, AResumedRequestKeepsItsPlace) {
  start();
  NodeScript one;
  one.max_batch = 1;
  one.step = milliseconds(10);
  add("p0");
  ScriptedNode& decode = add("d0", one);
  const auto first = submit(1);
  pass(45);
  const auto second = submit(2);
  pass(10);
  decode.kill();
  add("d1", one);
  pass(20);
  EXPECT_FALSE(second->end);
  EXPECT_TRUE(second->tokens.empty());
  pass(1'000);
  EXPECT_EQ(first->text(), kText);
  EXPECT_EQ(second->text(), kText);
  expect_quiet();
}

TEST_F(FailoverTest, ResumeStaysWithinOneModel) {
  start();
  add("p0");
  NodeScript dying;
  dying.die_at = 5;
  add("d0", dying);
  const auto sink = submit(1);
  pass(5);
  ASSERT_EQ(sink->text(), "Hello");
  cluster->remove("p0");
  cluster->remove("d0");
  pass(50);
  for (const char* name : {"p0", "d0"}) {
    cluster->add(with_other_weights(name));
  }
  pass(1'000);
  EXPECT_FALSE(sink->end) << "other weights give other tokens";
  EXPECT_EQ(cluster->node("d0").counts().reserves, 0U);
  const auto fresh = submit(2);
  pass(100);
  ASSERT_TRUE(fresh->end);
  EXPECT_FALSE(fresh->end->error);
}

TEST_F(FailoverTest, GrownPromptStillFitsWhereItWasPrefilledLocally) {
  start();
  NodeScript local;
  local.local_prefill_max_tokens = 8;  // the prompt has 6 tokens, with the output it is longer
  local.die_at = 7;
  add("d0", local);
  const auto sink = submit(1);
  local.die_at.reset();
  add("d1", local);
  pass(200);
  expect_whole(*sink);
  EXPECT_LE(sink->end->figures.cached_tokens, 6U);
}

// ---- pairs and stuck data threads

TEST_F(FailoverTest, APairWithTwoMismatchesIsOutUntilANewLife) {
  start();
  add("p0");
  NodeScript broken;
  broken.commit_error = Error{ErrorCode::ChecksumMismatch, "scripted"};
  add("d0", broken);
  const auto sink = submit(1);
  pass(500);
  EXPECT_FALSE(sink->end);
  ASSERT_EQ(health.barred().size(), 1U);
  EXPECT_EQ(health.barred()[0].prefill.name, "p0");
  EXPECT_EQ(cluster->node("d0").counts().reserves, RouteHealth::kMaxMismatches)
      << "one retry by another lease";
  EXPECT_FALSE(
      has_usable_pair(membership->views_of("scripted"), barred_pairs(health, *membership)));
  cluster->remove("d0");
  add("d0");
  pass(300);
  EXPECT_TRUE(health.barred().empty());
  expect_whole(*sink);
}

TEST_F(FailoverTest, AnotherPairTakesOverAfterAMismatch) {
  start();
  add("p0");
  NodeScript broken;
  broken.commit_error = Error{ErrorCode::ChecksumMismatch, "scripted"};
  add("d0", broken);
  const auto sink = submit(1);
  pass(2);
  add("d1");
  pass(500);
  expect_whole(*sink);
  EXPECT_EQ(failovers(FailoverReason::Checksum), 1);
  EXPECT_TRUE(health.barred().empty());
}

TEST(RouteHealth, CountsInARowOnly) {
  const Logger log = Logger::silent();
  int changes = 0;
  RouteHealth health(log, nullptr, {}, [&] { ++changes; });
  const RouteHealth::Pair pair{{"p", Incarnation{1}}, {"d", Incarnation{2}}};
  const RouteHealth::Pair other{{"p", Incarnation{1}}, {"e", Incarnation{3}}};
  health.mismatch(pair);
  health.verified(pair);
  health.mismatch(pair);
  health.mismatch(other);
  EXPECT_TRUE(health.barred().empty());
  health.mismatch(pair);
  EXPECT_EQ(health.barred(), std::vector{pair});
  health.verified(pair);
  health.started({"d", Incarnation{2}});
  health.started({"x", Incarnation{9}});
  EXPECT_EQ(health.barred(), std::vector{pair}) << "a connection made again is no new life";
  health.started({"d", Incarnation{4}});
  EXPECT_TRUE(health.barred().empty());
  EXPECT_EQ(changes, 2);
  health.mismatch(other);
  EXPECT_EQ(health.barred(), std::vector{other});
}

TEST_F(FailoverTest, AStuckDataThreadIsSuspectThenDead) {
  start();
  NodeScript moving;
  moving.reactor_ticks = 5;
  add("p0", moving);
  ScriptedNode& stuck = add("d0", moving);
  pass(2'000);
  EXPECT_EQ(membership->stats().lost, 0U);
  stuck.script().reactor_moves = false;
  pass(420);
  EXPECT_EQ(membership->nodes()[0]->health, PeerHealth::Suspect);
  stuck.script().reactor_moves = true;
  pass(200);
  EXPECT_EQ(membership->nodes()[0]->health, PeerHealth::Alive);
  stuck.script().reactor_moves = false;
  const auto sink = submit(1);
  sink->tokens.clear();
  pass(1'500);
  EXPECT_EQ(membership->stats().lost, 1U);
  EXPECT_EQ(membership->nodes().size(), 1U) << "it stays out while its counter stands";
  stuck.script().reactor_ticks += 1;
  stuck.script().reactor_moves = true;
  pass(3'000);
  EXPECT_EQ(membership->nodes().size(), 2U);
}

// ---- the budget alone

TEST(FailoverBudget, CountsDeathsOnlyOfNodesAtWork) {
  FailoverBudget budget({.max_node_losses = 2});
  EXPECT_TRUE(budget.spend(FailoverReason::NodeDied, 0, false));
  EXPECT_TRUE(budget.spend(FailoverReason::NodeDied, 0, true));
  EXPECT_TRUE(budget.spend(FailoverReason::Draining, 0, true));
  EXPECT_FALSE(budget.spend(FailoverReason::NodeDied, 5, true));
}

TEST(FailoverBudget, ProgressStartsACountAnew) {
  FailoverBudget budget({.max_node_losses = 2, .max_faults = 2, .progress_tokens = 10});
  EXPECT_TRUE(budget.spend(FailoverReason::NodeDied, 0, true));
  EXPECT_TRUE(budget.spend(FailoverReason::Timeout, 4, true));
  EXPECT_TRUE(budget.spend(FailoverReason::NodeDied, 10, true));
  EXPECT_FALSE(budget.spend(FailoverReason::Timeout, 13, true));
  EXPECT_FALSE(budget.spend(FailoverReason::NodeDied, 19, true));
}

TEST(FailoverBudget, RestsLongerAfterEachFault) {
  FailoverBudget budget;
  EXPECT_EQ(budget.pause().count(), 0);
  budget.spend(FailoverReason::Peer, 0, true);
  const auto first = budget.pause();
  budget.spend(FailoverReason::Checksum, 0, true);
  EXPECT_GT(budget.pause(), first);
  budget.spend(FailoverReason::Preempted, 0, true);
  EXPECT_EQ(budget.pause().count(), 0);
  for (int i = 0; i < 100; ++i) {
    budget.spend(FailoverReason::Peer, 0, true);
  }
  EXPECT_LE(budget.pause(), std::chrono::seconds(1));
}

TEST(FailoverBudget, EveryRetryableErrorHasAReason) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal) + 2; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(failover_reason(code).has_value(), is_retryable(code)) << to_string(code);
  }
}

}  // namespace
}  // namespace baton::gateway
