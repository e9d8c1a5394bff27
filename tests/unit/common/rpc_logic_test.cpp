// The parts of control connections that need no socket: in-memory channels, links, heartbeats and
// the comparison of Hellos, on a manual clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/exec/manual_executor.h"
#include "common/rpc/call_table.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/hello_check.h"
#include "common/rpc/peer_link.h"
#include "common/types/kv_layout.h"
#include "common/wire/convert.h"
#include "tests/support/memory_channel.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::FrameFate;
using ::testing::HasSubstr;
using testing::MemoryFabric;

wire::Frame plain_cancel(std::uint64_t request) {
  wire::Frame frame;
  frame.mutable_cancel()->set_request(request);
  return frame;
}

TEST(CallTable, EachCallHasItsOwnLimitOnOneTimer) {
  ManualExecutor executor;
  CallTable calls(executor);
  std::vector<std::string> log;
  const auto note = [&](const std::string& name) {
    return [&log, name](const Result<wire::Frame>& result) {
      log.push_back(name + (result ? " answered" : " " + result.error().message));
    };
  };
  const auto answered = calls.open(milliseconds(10), note("first"));
  calls.open(milliseconds(50), note("second"));
  calls.open(milliseconds(20), note("third"));
  calls.open(milliseconds(20), note("fourth"));
  wire::Frame frame;
  frame.set_answers(answered);
  calls.finish(frame);
  EXPECT_THAT(log, ElementsAre("first answered"));
  executor.advance(milliseconds(19));
  EXPECT_EQ(log.size(), 1U);
  executor.advance(milliseconds(1));
  EXPECT_THAT(
      log,
      ElementsAre(
          "first answered", "third no answer within 20 ms", "fourth no answer within 20 ms"));
  calls.open(milliseconds(5), note("fifth"));  // ends before the one that waits
  executor.advance(milliseconds(5));
  EXPECT_EQ(log.back(), "fifth no answer within 5 ms");
  executor.advance(milliseconds(24));
  EXPECT_EQ(log.size(), 4U);
  executor.advance(milliseconds(1));
  EXPECT_EQ(log.back(), "second no answer within 50 ms");
  EXPECT_EQ(calls.size(), 0U);
  EXPECT_FALSE(executor.next_due()) << "a timer without a call";
}

TEST(CallTable, AHandlerThatRunsOutOfTimeMayForgetTheOthers) {
  ManualExecutor executor;
  CallTable calls(executor);
  int late = 0;
  for (int i = 0; i < 3; ++i) {
    calls.open(milliseconds(10), [&](const Result<wire::Frame>&) {
      ++late;
      calls.forget_all();
    });
  }
  executor.advance(milliseconds(100));
  EXPECT_EQ(late, 1);
}

TEST(MemoryChannel, CallsAndAnswers) {
  ManualExecutor executor;
  auto pair = testing::make_memory_pair(executor);
  pair.second->set_handlers([&](const wire::Frame& frame) { pair.second->answer(frame, {}); }, {});
  bool answered = false;
  pair.first->call(plain_cancel(1), milliseconds(100), [&](const Result<wire::Frame>& result) {
    answered = result.has_value();
  });
  EXPECT_FALSE(answered);
  executor.run_until_idle();
  EXPECT_TRUE(answered);
}

TEST(MemoryChannel, FrameThatWantsNoAnswerGetsNone) {
  ManualExecutor executor;
  auto pair = testing::make_memory_pair(executor);
  int frames = 0;
  const auto complain = [&](Channel& channel) {
    return [&](const wire::Frame& frame) {
      ++frames;
      channel.answer_error(frame, Error{ErrorCode::ProtocolError, "no such message"});
    };
  };
  pair.first->set_handlers(complain(*pair.first), {});
  pair.second->set_handlers(complain(*pair.second), {});
  pair.first->send(plain_cancel(1));
  executor.run_until_idle();
  EXPECT_EQ(frames, 1) << "two sides must not complain to each other for ever";
}

TEST(MemoryChannel, DelayKeepsOrderAndDropTimesOut) {
  ManualExecutor executor;
  std::vector<std::uint64_t> seen;
  auto pair = testing::make_memory_pair(
      executor,
      "a",
      "b",
      [](const std::string& from, const std::string&, const wire::Frame& frame) {
        FrameFate fate;
        fate.delay = frame.cancel().request() == 1 ? milliseconds(50) : milliseconds(0);
        fate.drop = from == "a" && frame.cancel().request() == 3;
        return fate;
      });
  pair.second->set_handlers(
      [&](const wire::Frame& frame) { seen.push_back(frame.cancel().request()); }, {});
  pair.first->send(plain_cancel(1));
  pair.first->send(plain_cancel(2));
  ErrorCode code = ErrorCode::Internal;
  pair.first->call(plain_cancel(3), milliseconds(70), [&](const Result<wire::Frame>& result) {
    code = result.error().code;
  });
  executor.advance(milliseconds(49));
  EXPECT_TRUE(seen.empty());
  executor.advance(milliseconds(1));
  EXPECT_THAT(seen, ElementsAre(1, 2));
  executor.advance(milliseconds(100));
  EXPECT_EQ(code, ErrorCode::Timeout);
}

TEST(MemoryChannel, KillReachesBothSidesAndOpenCalls) {
  ManualExecutor executor;
  auto pair = testing::make_memory_pair(executor);
  std::vector<std::string> seen;
  pair.first->set_handlers({}, [&](const Error&) { seen.emplace_back("first"); });
  pair.second->set_handlers([](const wire::Frame&) {},
                            [&](const Error&) { seen.emplace_back("second"); });
  pair.first->call(plain_cancel(1), milliseconds(100), [&](const Result<wire::Frame>& result) {
    seen.emplace_back(to_string(result.error().code));
  });
  executor.run_until_idle();
  pair.kill();
  executor.run_until_idle();
  EXPECT_THAT(seen, ElementsAre("peer_dead", "first", "second"));
}

TEST(MemoryChannel, MayBeDroppedInsideItsCallbacks) {
  ManualExecutor executor;
  auto pair = testing::make_memory_pair(executor);
  pair.second->set_handlers([&](const wire::Frame&) { pair.second.reset(); }, {});
  bool closed = false;
  pair.first->set_handlers({}, [&](const Error&) {
    closed = true;
    pair.first.reset();
  });
  pair.first->send(plain_cancel(1));
  pair.first->send(plain_cancel(2));
  executor.run_until_idle();
  EXPECT_TRUE(closed);
  EXPECT_EQ(pair.first, nullptr);
}

struct LinkFixture {
  ManualExecutor executor;
  MemoryFabric fabric{executor};
  std::unique_ptr<Network> server = fabric.network("server");
  std::unique_ptr<Network> client = fabric.network("client");
  std::vector<std::string> events;
  std::vector<std::unique_ptr<Channel>> accepted;
  std::unique_ptr<Listener> listener;
  std::optional<wire::Refusal> refusal;

  void listen() {
    auto result = server->listen(
        "server:1",
        [this](const wire::Hello&) -> HelloAnswer {
          if (refusal) {
            return *refusal;
          }
          return wire::Welcome();
        },
        [this](std::unique_ptr<Channel> channel, const wire::Hello&) {
          accepted.push_back(std::move(channel));
        });
    ASSERT_TRUE(result) << result.error().message;
    listener = std::move(*result);
  }
  PeerLinkHandlers handlers() {
    PeerLinkHandlers made;
    made.make_hello = [] { return wire::Hello(); };
    made.on_up = [this](Channel&, const wire::Welcome&) { events.emplace_back("up"); };
    made.on_frame = [](Channel&, const wire::Frame&) {};
    made.on_down = [this](const Error& error) { events.emplace_back("down " + error.message); };
    made.on_failed = [this](const Error& error) {
      events.emplace_back("failed " + std::string(to_string(error.code)));
    };
    return made;
  }
};

TEST(PeerLink, PausesGrowToTheLongestAndAreJittered) {
  LinkFixture f;
  PeerLink link(f.executor, *f.client, seeded_random(3), {.address = "server:1"}, f.handlers());
  link.start();
  std::vector<double> pauses;
  f.executor.run_until_idle();
  for (int i = 0; i < 9; ++i) {
    const auto before = f.executor.now();
    ASSERT_TRUE(f.executor.advance_to_next_timer());
    pauses.push_back(std::chrono::duration<double, std::milli>(f.executor.now() - before).count());
  }
  double full = 50;
  for (const double pause : pauses) {
    EXPECT_GE(pause, full / 2);
    EXPECT_LE(pause, full);
    full = std::min(full * 2, 2000.0);
  }
  EXPECT_EQ(f.events.size(), 10U);
  f.listen();
  f.executor.advance_to_next_timer();
  EXPECT_EQ(f.events.back(), "up");
  EXPECT_TRUE(link.is_up());
}

TEST(PeerLink, ResetFailsOpenCallsThenDialsAgain) {
  LinkFixture f;
  f.listen();
  PeerLink link(f.executor, *f.client, seeded_random(3), {.address = "server:1"}, f.handlers());
  link.start();
  f.executor.run_until_idle();
  link.channel()->call(
      plain_cancel(1), milliseconds(60'000), [&](const Result<wire::Frame>& result) {
        f.events.emplace_back("call " + std::string(to_string(result.error().code)));
      });
  link.reset(Error{ErrorCode::PeerStalled, "missed heartbeats"});
  f.executor.advance(milliseconds(100));
  EXPECT_THAT(f.events, ElementsAre("up", "call peer_stalled", "down missed heartbeats", "up"));
  EXPECT_EQ(f.accepted.size(), 2U);
}

TEST(PeerLink, RefusalIsTriedAgainAtTheLongestPause) {
  LinkFixture f;
  f.listen();
  f.refusal = to_refusal(Error{ErrorCode::Unauthorized, "does not match"}, "cluster_token");
  PeerLink link(f.executor, *f.client, seeded_random(3), {.address = "server:1"}, f.handlers());
  link.start();
  f.executor.advance(milliseconds(900));
  EXPECT_THAT(f.events, ElementsAre("failed unauthorized"));
  f.refusal.reset();
  f.executor.advance(milliseconds(1200));
  EXPECT_THAT(f.events, ElementsAre("failed unauthorized", "up"));
}

TEST(PeerLink, StopIsFinal) {
  LinkFixture f;
  f.listen();
  PeerLink link(f.executor, *f.client, seeded_random(3), {.address = "server:1"}, f.handlers());
  link.start();
  f.executor.run_until_idle();
  link.stop();
  f.fabric.kill("server");
  f.executor.advance(milliseconds(10'000));
  EXPECT_THAT(f.events, ElementsAre("up"));
}

TEST(PeerLink, KilledServerIsNoticedAndFoundAgain) {
  LinkFixture f;
  f.listen();
  PeerLink link(f.executor, *f.client, seeded_random(3), {.address = "server:1"}, f.handlers());
  link.start();
  f.executor.run_until_idle();
  f.fabric.kill("server");
  f.executor.advance(milliseconds(500));
  EXPECT_FALSE(link.is_up());
  f.listen();
  f.executor.advance(milliseconds(2000));
  EXPECT_TRUE(link.is_up());
}

TEST(Heartbeat, SendsAtOnceAndThenEachPeriod) {
  ManualExecutor executor;
  int sent = 0;
  {
    const HeartbeatSender sender(executor, milliseconds(100), [&] { ++sent; });
    executor.run_until_idle();
    EXPECT_EQ(sent, 1);
    executor.advance(milliseconds(1000));
    EXPECT_EQ(sent, 11);
  }
  executor.advance(milliseconds(1000));
  EXPECT_EQ(sent, 11);
}

TEST(Heartbeat, SenderMayBeDroppedInside) {
  ManualExecutor executor;
  int sent = 0;
  std::unique_ptr<HeartbeatSender> sender;
  sender = std::make_unique<HeartbeatSender>(executor, milliseconds(100), [&] {
    ++sent;
    sender.reset();
  });
  executor.advance(milliseconds(1000));
  EXPECT_EQ(sent, 1);
}

TEST(Heartbeat, WatchGoesSuspectThenDead) {
  ManualExecutor executor;
  std::vector<PeerHealth> seen;
  HeartbeatWatch watch(executor,
                       {.period = milliseconds(100), .suspect_after = 3, .dead_after = 6},
                       [&](PeerHealth health) { seen.push_back(health); });
  for (int i = 0; i < 20; ++i) {
    watch.beat();
    executor.advance(milliseconds(100));
  }
  EXPECT_TRUE(seen.empty());
  executor.advance(milliseconds(300));
  EXPECT_THAT(seen, ElementsAre(PeerHealth::Suspect));
  watch.beat();
  EXPECT_THAT(seen, ElementsAre(PeerHealth::Suspect, PeerHealth::Alive));
  executor.advance(milliseconds(1000));
  EXPECT_THAT(
      seen,
      ElementsAre(PeerHealth::Suspect, PeerHealth::Alive, PeerHealth::Suspect, PeerHealth::Dead));
}

TEST(Heartbeat, ASilencesEndIsNoLaterThanTheLimit) {
  for (int offset = 0; offset < 100;
       offset += 7) {  // of the last heartbeat to the watch's own ticks
    ManualExecutor executor;
    PeerHealth health = PeerHealth::Alive;
    HeartbeatWatch watch(executor,
                         {.period = milliseconds(100), .suspect_after = 3, .dead_after = 6},
                         [&](PeerHealth now) { health = now; });
    executor.advance(milliseconds(offset));
    watch.beat();
    executor.advance(milliseconds(574));
    EXPECT_EQ(health, PeerHealth::Suspect) << offset;
    executor.advance(milliseconds(26));
    EXPECT_EQ(health, PeerHealth::Dead) << offset;
  }
}

TEST(Heartbeat, WatchMayBeDroppedInside) {
  ManualExecutor executor;
  std::unique_ptr<HeartbeatWatch> watch;
  watch = std::make_unique<HeartbeatWatch>(
      executor, HeartbeatLimits{milliseconds(10), 1, 2}, [&](PeerHealth health) {
        if (health == PeerHealth::Dead) {
          watch.reset();
        }
      });
  executor.advance(milliseconds(100));
  EXPECT_EQ(watch, nullptr);
}

KvLayout layout() {
  return {.layers = 30, .kv_heads = 3, .head_dim = 64};
}

wire::ModelIdentity model() {
  wire::ModelIdentity identity;
  identity.set_id("tiny");
  identity.set_tokenizer_hash(1);
  identity.set_numerics_hash(2);
  *identity.mutable_layout() = to_wire(layout());
  identity.set_layout_hash(layout().hash());
  return identity;
}

wire::Hello good_hello() {
  wire::Hello hello;
  hello.set_wire_major(kWireMajor);
  hello.set_cluster_token("secret");
  hello.set_role("prefill");
  hello.set_node("p0");
  hello.set_ucx_version("1.13.1");
  *hello.mutable_model() = model();
  return hello;
}

HelloExpectations expectations() {
  return {.cluster_token = "secret",
          .roles = {"prefill", "decode"},
          .model = model(),
          .ucx_version = "1.13.1"};
}

TEST(HelloCheck, AcceptsEqualSides) {
  EXPECT_FALSE(check_hello(good_hello(), expectations()));
  auto gateway = good_hello();
  gateway.set_role("gateway");
  gateway.clear_model();
  auto wanted = expectations();
  wanted.roles = {};
  EXPECT_FALSE(check_hello(gateway, wanted));
}

TEST(HelloCheck, NamesTheFieldThatDiffers) {
  struct Case {
    std::string field;
    std::string code;
    std::function<void(wire::Hello&)> change;
  };
  auto other = layout();
  other.kv_heads = 4;
  const std::vector<Case> cases{
      {"wire_major", "mismatch", [](auto& h) { h.set_wire_major(kWireMajor + 1); }},
      {"cluster_token", "unauthorized", [](auto& h) { h.set_cluster_token("secreT"); }},
      {"cluster_token", "unauthorized", [](auto& h) { h.set_cluster_token(""); }},
      {"role", "mismatch", [](auto& h) { h.set_role("gateway"); }},
      {"role", "mismatch", [](auto& h) { h.set_role("king"); }},
      {"node", "invalid_argument", [](auto& h) { h.set_node(""); }},
      {"node", "invalid_argument", [](auto& h) { h.set_node(std::string(65, 'n')); }},
      {"ucx_version", "mismatch", [](auto& h) { h.set_ucx_version("1.17.0"); }},
      {"model", "invalid_argument", [](auto& h) { h.clear_model(); }},
      {"model.id", "mismatch", [](auto& h) { h.mutable_model()->set_id("big"); }},
      {"model.tokenizer_hash",
       "mismatch",
       [](auto& h) { h.mutable_model()->set_tokenizer_hash(9); }},
      {"model.layout", "invalid_argument", [](auto& h) { h.mutable_model()->clear_layout(); }},
      {"model.layout_hash",
       "invalid_argument",
       [](auto& h) { h.mutable_model()->set_layout_hash(9); }},
      {"model.layout_hash",
       "mismatch",
       [&](auto& h) {
         *h.mutable_model()->mutable_layout() = to_wire(other);
         h.mutable_model()->set_layout_hash(other.hash());
       }},
      {"model.numerics_hash", "mismatch", [](auto& h) { h.mutable_model()->set_numerics_hash(9); }},
  };
  for (const auto& test : cases) {
    auto hello = good_hello();
    test.change(hello);
    const auto refusal = check_hello(hello, expectations());
    ASSERT_TRUE(refusal) << test.field;
    EXPECT_EQ(refusal->field(), test.field);
    EXPECT_EQ(refusal->code(), test.code) << test.field;
    EXPECT_THAT(refusal->message(), ::testing::Not(HasSubstr("secret")));
  }
}

// Prefill converts block sizes and element orders; nobody converts numbers.
TEST(HelloCheck, LayoutsNeedOnlyBeConvertible) {
  const auto offer = [](auto change) {
    auto other = layout();
    change(other);
    auto hello = good_hello();
    *hello.mutable_model()->mutable_layout() = to_wire(other);
    hello.mutable_model()->set_layout_hash(other.hash());
    return check_hello(hello, expectations());
  };
  EXPECT_FALSE(offer([](KvLayout& l) { l.block_tokens = 16; }));
  EXPECT_FALSE(offer([](KvLayout& l) { l.block_tokens = 64; }));
  EXPECT_FALSE(offer([](KvLayout& l) { l.order = KvOrder::ByTokenAndHead; }));
  EXPECT_TRUE(offer([](KvLayout& l) { l.dtype = KvDType::F32; }));
  const auto i8 = offer([](KvLayout& l) { l.dtype = KvDType::I8; });
  ASSERT_TRUE(i8);
  EXPECT_EQ(i8->field(), "model.layout_hash");
  EXPECT_THAT(i8->message(), HasSubstr("f16"));
  EXPECT_THAT(i8->message(), HasSubstr("i8"));
  EXPECT_TRUE(offer([](KvLayout& l) { l.head_dim = 128; }));
  EXPECT_TRUE(offer([](KvLayout& l) { l.layers = 31; }));
  EXPECT_TRUE(offer([](KvLayout& l) { l.block_tokens = 24; }));  // of no node
}

TEST(HelloCheck, PrintsBothLayouts) {
  auto hello = good_hello();
  auto other = layout();
  other.layers = 18;
  *hello.mutable_model()->mutable_layout() = to_wire(other);
  hello.mutable_model()->set_layout_hash(other.hash());
  const auto refusal = check_hello(hello, expectations());
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->message(), HasSubstr(layout().to_string()));
  EXPECT_THAT(refusal->message(), HasSubstr(other.to_string()));
}

TEST(HelloCheck, WelcomeIsComparedToo) {
  wire::Welcome welcome;
  welcome.set_node("d0");
  welcome.set_ucx_version("1.13.1");
  *welcome.mutable_model() = model();
  EXPECT_TRUE(check_welcome(welcome, expectations()));
  welcome.mutable_model()->set_numerics_hash(9);
  const auto status = check_welcome(welcome, expectations());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::Mismatch);
  EXPECT_THAT(status.error().message, HasSubstr("model.numerics_hash"));
}

}  // namespace
}  // namespace baton
