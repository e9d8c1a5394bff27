// Requests that a node hands back: drained, preempted, late. Each goes on elsewhere and ends with
// the same tokens, and no block is lost.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/wire/convert.h"
#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NodesDrain : public NodesFixture {
 protected:
  NodesDrain() {
    for (const char* name : {"d0", "d1"}) {
      cluster_.add("decode", name);
    }
    for (const char* name : {"p0", "p1"}) {
      cluster_.add("prefill", name);
    }
  }
};

TEST_F(NodesDrain, DecodeHandsBackWhatItsGatewayResumesElsewhere) {
  const GenerateRequest request = make_request(1, 60, 200);
  cluster_.start(request, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(request).tokens.size() > 5; }));
  drain("d0", milliseconds(0));
  ASSERT_TRUE(cluster_.finish(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::Draining);
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.last_beat("d0")->draining(); }));
  cluster_.settle();
  EXPECT_NE(cluster_.channel("d0"), nullptr);  // it waits for somebody to stop it
  EXPECT_EQ(cluster_.last_beat("d0")->load().running(), 0U);
  EXPECT_FALSE(cluster_.node("d0").role().is_ready());
  EXPECT_EQ(cluster_.node("d0").metric("baton_node_draining"), 1);
  EXPECT_EQ(cluster_.node("d0").metric("baton_decode_ended_total{reason=\"draining\"}"), 1);
  const GenerateRequest refused = make_request(2, 60, 5);
  cluster_.start(refused, "p0", "d0");
  EXPECT_EQ(cluster_.finish(refused).error->code, ErrorCode::Draining);
  const GenerateRequest next = resumed(request);
  EXPECT_GT(next.output.size(), 5U);
  cluster_.start(next, "p1", "d1");
  cluster_.finish(next);
  expect_resumed_same(request, next);
}

TEST_F(NodesDrain, PrefillHandsBackAtTheLimitAndNotBefore) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest request = make_request(1, 60, 9);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  drain("p0", milliseconds(500));
  cluster_.executor().advance(milliseconds(490));
  EXPECT_FALSE(cluster_.answer(request).error);
  cluster_.executor().advance(milliseconds(20));
  ASSERT_TRUE(cluster_.answer(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::Draining);
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.settle();  // the decode node was told, too: its grant has ended
  EXPECT_EQ(cluster_.node("d0").decode().grants().num_open(), 0U);
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  const GenerateRequest refused = make_request(2, 60, 5);
  cluster_.start(refused, "p0", "d0");
  EXPECT_EQ(cluster_.finish(refused).error->code, ErrorCode::Draining);
  cluster_.cancel(refused);  // as a gateway does when one leg fails
  const GenerateRequest next = resumed(request);
  cluster_.start(next, "p1", "d0");
  cluster_.finish(next);
  expect_resumed_same(request, next);
  cluster_.settle();
}

TEST_F(NodesDrain, WhatEndsInTimeEndsAsUsual) {
  const GenerateRequest request = make_request(1, 60, 40);
  cluster_.start(request, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(request).tokens.size() > 2; }));
  drain("d0", seconds(10));
  drain("p0", seconds(10));
  cluster_.finish(request);
  expect_same(request);
}

class NodesChangeRole : public NodesFixture {
 protected:
  NodesChangeRole()
      : NodesFixture([] {
          ClusterConfig config = default_config();
          config.pools.change_roles = "on";
          return config;
        }()) {
    cluster_.add("decode", "d0");
    cluster_.add("prefill", "p0");
  }
  Result<wire::Frame> ask(const std::string& node, const std::string& role) {
    wire::Frame frame;
    frame.mutable_drain()->set_limit_ms(10'000);
    frame.mutable_drain()->set_then_role(role);
    std::optional<Result<wire::Frame>> answer;
    cluster_.channel(node)->call(
        frame, seconds(5), [&](Result<wire::Frame> got) { answer = std::move(got); });
    EXPECT_TRUE(cluster_.run_until([&] { return answer.has_value(); }));
    return *answer;
  }
};

TEST_F(NodesChangeRole, TheOtherRoleComesOnceNothingIsInWork) {
  EXPECT_TRUE(cluster_.run_until(
      [&] { return cluster_.last_beat("d0") && cluster_.last_beat("d0")->may_change_role(); }));
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });  // keeps it in work
  const GenerateRequest request = make_request(1, 60, 9);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  ASSERT_TRUE(ask("d0", "prefill"));
  EXPECT_EQ(cluster_.node("d0").next_role(), "");
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.finish(request);
  expect_same(request);
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.node("d0").next_role() == "prefill"; }));
}

TEST_F(NodesChangeRole, UnknownRolesAreRefused) {
  EXPECT_EQ(ask("p0", "gateway").error().code, ErrorCode::InvalidArgument);
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.last_beat("p0").has_value(); }));
  EXPECT_FALSE(cluster_.last_beat("p0")->draining());
}

TEST_F(NodesDrain, NodesOfOneRoleRefuseAnother) {
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.last_beat("d0").has_value(); }));
  EXPECT_FALSE(cluster_.last_beat("d0")->may_change_role());
  wire::Frame frame;
  frame.mutable_drain()->set_then_role("prefill");
  bool is_refused = false;
  cluster_.channel("d0")->call(frame, seconds(5), [&](const Result<wire::Frame>& answer) {
    is_refused = !answer && answer.error().code == ErrorCode::InvalidArgument;
  });
  EXPECT_TRUE(cluster_.run_until([&] { return is_refused; }));
  EXPECT_FALSE(cluster_.last_beat("d0")->draining());
}

TEST_F(NodesDrain, NearerLimitCounts) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest request = make_request(1, 60, 9);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  drain("d0", seconds(10));
  bool is_drained = false;
  cluster_.node("d0").role().drain(seconds(60), [&] { is_drained = true; });  // as SIGTERM
  drain("d0", milliseconds(0));
  EXPECT_EQ(cluster_.finish(request).error->code, ErrorCode::Draining);
  EXPECT_TRUE(cluster_.run_until([&] { return is_drained; }));
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.settle();
}

TEST_F(NodesDrain, HandedBackAfterAnyTaskGoesOnWithTheSameTokens) {
  std::size_t handed_back = 0;
  for (std::size_t tasks = 0; tasks < 60; ++tasks) {
    const std::string name = fmt::format("x{}", tasks);
    const bool is_decode = tasks % 2 == 0;
    cluster_.add(is_decode ? "decode" : "prefill", name);
    const GenerateRequest request = make_request(1000 + tasks, 90, 6, tasks);
    cluster_.start(request, is_decode ? "p0" : name, is_decode ? name : "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    drain(name, milliseconds(0));
    cluster_.executor().run_until_idle();
    ASSERT_TRUE(cluster_.answer(request).is_over()) << tasks;
    if (!cluster_.answer(request).error) {
      expect_same(request);
    } else {
      ASSERT_TRUE(is_retryable(cluster_.answer(request).error->code)) << tasks;
      ++handed_back;
      cluster_.cancel(request);
      const GenerateRequest next = resumed(request);
      cluster_.start(next, "p1", "d1");
      cluster_.finish(next);
      expect_resumed_same(request, next);
    }
    cluster_.settle();
  }
  EXPECT_GT(handed_back, 20U);
}

// The gateway's part: what is preempted is asked for again with all its blocks, what finds no room
// waits for its turn.
class NodesPreemption : public NodesFixture {
 protected:
  NodesPreemption()
      : NodesFixture([] {
          ClusterConfig config;
          config.decode.expected_output_tokens = 16;
          config.decode.max_batch = 64;
          config.prefill.credits = 64;
          return config;
        }()) {}

  struct Asked {
    GenerateRequest whole;
    GenerateRequest last;
    bool is_started = false;
    bool is_cancelled = false;
    bool is_whole = false;  // reserves all its blocks
    bool is_done = false;
  };

  void start(Asked& asked) {
    asked.is_started = true;
    if (asked.is_whole) {
      cluster_.start_whole(asked.last, "p0", "d0");
    } else {
      cluster_.start(asked.last, "p0", "d0");
    }
  }

  // Moves everything on until all are done; `on_round` between two tasks.
  void run(std::vector<Asked>& all, const std::function<void()>& on_round = nullptr) {
    const auto done = [&] {
      if (on_round) {
        on_round();
      }
      bool any_room = true;
      for (Asked& asked : all) {
        if (asked.is_done) {
          continue;
        }
        if (!asked.is_started && any_room) {
          start(asked);
          continue;
        }
        const Answer& answer = cluster_.answer(asked.last);
        if (!answer.is_over()) {
          continue;
        }
        if (!answer.error) {
          asked.is_done = true;
          continue;
        }
        EXPECT_TRUE(is_retryable(answer.error->code)) << answer.error->message;
        any_room = answer.error->code != ErrorCode::Busy;
        preempted_ += answer.error->code == ErrorCode::Preempted ? 1 : 0;
        asked.is_whole = asked.is_whole || answer.error->code == ErrorCode::Preempted;
        asked.last = resumed(asked.last);
        asked.is_started = false;
      }
      return std::ranges::all_of(all, [](const Asked& asked) { return asked.is_done; });
    };
    EXPECT_TRUE(cluster_.run_until(done));
  }

  std::size_t preempted_ = 0;
};

TEST_F(NodesPreemption, ManyLongAnswersInASmallPoolAllEnd) {
  cluster_.add("decode", "d0", 40);
  cluster_.add("prefill", "p0", 200);
  std::vector<Asked> all;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const GenerateRequest request = make_request(10 + i, 30 + 5 * i, 150, i);
    all.push_back({.whole = request, .last = request});
  }
  run(all);
  for (const Asked& asked : all) {
    expect_resumed_same(asked.whole, asked.last);
  }
  EXPECT_GT(preempted_, 0U);
  EXPECT_LT(preempted_, 30U);  // nobody is preempted again and again
  EXPECT_EQ(cluster_.node("d0").metric("baton_decode_ended_total{reason=\"preempted\"}"),
            preempted_);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesPreemption, CancelsOfPreemptedAndGrowingRequestsLeakNothing) {
  cluster_.add("decode", "d0", 40);
  cluster_.add("prefill", "p0", 400);
  std::vector<Asked> all;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const GenerateRequest request = make_request(10 + i, 20 + i, 90, i);
    all.push_back({.whole = request, .last = request});
  }
  std::size_t rounds = 0;
  std::size_t next = 1;
  run(all, [&] {
    if (++rounds % 40 == 0 && next < all.size()) {
      Asked& asked = all[next];
      next += 2;
      asked.is_cancelled = !asked.is_done;
      asked.is_done = true;
      cluster_.cancel(asked.last);
    }
  });
  std::size_t whole = 0;
  for (const Asked& asked : all) {
    if (!asked.is_cancelled) {
      expect_resumed_same(asked.whole, asked.last);
      ++whole;
    }
  }
  EXPECT_GE(whole, 32U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesPreemption, RequestThatReservesAllIsNotPreempted) {
  cluster_.add("decode", "d0", 30);
  cluster_.add("prefill", "p0", 200);
  const GenerateRequest whole = make_request(1, 40, 200);
  const GenerateRequest growing = make_request(2, 40, 300, 2);
  cluster_.start(growing, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(growing).tokens.size() > 3; }));
  cluster_.start_whole(whole, "p0", "d0");
  cluster_.finish(whole);
  cluster_.finish(growing);
  expect_same(whole);
  ASSERT_TRUE(cluster_.answer(growing).error);
  EXPECT_EQ(cluster_.answer(growing).error->code, ErrorCode::Preempted);
  cluster_.settle();
}

TEST_F(NodesPreemption, PoolOfOneAndAHalfPromptsServesEight) {
  cluster_.add("decode", "d0", 10);
  cluster_.add("prefill", "p0", 9);
  std::vector<Asked> all;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const GenerateRequest request = make_request(10 + i, 90, 30, i);
    all.push_back({.whole = request, .last = request});
  }
  run(all);
  for (const Asked& asked : all) {
    expect_resumed_same(asked.whole, asked.last);
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

class NodesDeadline : public NodesFixture {
 protected:
  NodesDeadline() {
    cluster_.add("decode", "d0");
    cluster_.add("prefill", "p0", 12);
    network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  }
  // The gateway hangs: it neither cancels nor closes its connections.
  GenerateRequest start(std::uint64_t id, milliseconds deadline) {
    GenerateRequest request = make_request(id, 100, 20, id);
    request.deadline = deadline;
    cluster_.start(request, "p0", "d0");
    cluster_.executor().run_until_idle();
    return request;
  }
};

TEST_F(NodesDeadline, EndsARequestWhoseBlocksDoNotCome) {
  const GenerateRequest request = start(1, milliseconds(700));
  cluster_.executor().advance(milliseconds(699));
  EXPECT_FALSE(cluster_.answer(request).error);
  cluster_.executor().advance(milliseconds(2));
  ASSERT_TRUE(cluster_.answer(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::Timeout);
  network_.release_stalled();
  cluster_.settle();
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  EXPECT_EQ(cluster_.node("d0").decode().grants().num_open(), 0U);
}

TEST_F(NodesDeadline, EndsARequestThatWaitsForPrefillBlocks) {
  const GenerateRequest first = start(1, seconds(60));         // takes 7 of 12 blocks
  const GenerateRequest second = start(2, milliseconds(400));  // waits
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_waiting(), 1U);
  cluster_.executor().advance(milliseconds(401));
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_waiting(), 0U);
  EXPECT_EQ(cluster_.answer(second).error->code, ErrorCode::Timeout);
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.finish(first);
  expect_same(first);
  cluster_.settle();
}

}  // namespace
}  // namespace baton::testing
