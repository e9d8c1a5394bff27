// Cancel reaches every owner within one step, whatever the request is doing: the step in work ends,
// and nothing more of the request is computed.
#include <fmt/format.h>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

class NodesCancel : public NodesFixture {
 protected:
  NodesCancel()
      : NodesFixture([] {
          ClusterConfig config = small_chunks();
          config.decode.local_prefill_max_tokens = 200;
          config.decode.local_prefill_chunk = 8;
          return config;
        }()) {
    cluster_.add("decode", "d0");
    cluster_.add("prefill", "p0", 12);
  }

  double cancelled(const std::string& node, const std::string& role, const std::string& phase) {
    return cluster_.node(node).metric(
        fmt::format("baton_{}_cancelled_total{{phase=\"{}\"}}", role, phase));
  }

  // Runs `tasks` tasks of a request, ends it by `end`, and counts what is computed afterwards.
  void end_after(std::size_t tasks,
                 const std::string& prefill,
                 const std::function<void(const GenerateRequest&)>& end,
                 std::size_t most = 1) {
    const GenerateRequest request = make_request(1000 + tasks, 90, 6, tasks);
    cluster_.start(request, prefill, "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    const std::size_t decode_steps = steps("d0");
    const std::size_t prefill_steps = steps("p0");
    end(request);
    cluster_.settle();
    ASSERT_LE(steps("d0") - decode_steps, most) << tasks;
    ASSERT_LE(steps("p0") - prefill_steps, most) << tasks;
    ASSERT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U) << tasks;
    ASSERT_EQ(cluster_.node("d0").decode().scheduler().num_running(), 0U) << tasks;
    ASSERT_EQ(cluster_.node("d0").decode().grants().num_open(), 0U) << tasks;
  }
};

TEST_F(NodesCancel, NothingIsComputedAfterTheStepInWork) {
  for (std::size_t tasks = 0; tasks < 250; ++tasks) {
    ASSERT_NO_FATAL_FAILURE(
        end_after(tasks, "p0", [this](const GenerateRequest& r) { cluster_.cancel(r); }));
  }
  for (const char* phase : {"computing", "delivering"}) {
    EXPECT_GT(cancelled("p0", "prefill", phase), 0) << phase;
  }
  for (const char* phase : {"granted", "landing", "fencing", "decoding"}) {
    EXPECT_GT(cancelled("d0", "decode", phase), 0) << phase;
  }
}

TEST_F(NodesCancel, NothingIsComputedAfterTheStepOfALocalPrefill) {
  for (std::size_t tasks = 0; tasks < 60; ++tasks) {
    ASSERT_NO_FATAL_FAILURE(
        end_after(tasks, "", [this](const GenerateRequest& r) { cluster_.cancel(r); }));
  }
  EXPECT_GT(cancelled("d0", "decode", "prefilling"), 0);
  EXPECT_GT(cancelled("d0", "decode", "decoding"), 0);
}

TEST_F(NodesCancel, LostGatewayEndsItsRequestsInEveryPhase) {
  const auto lose = [this](const GenerateRequest& request) {
    cluster_.close_gateway("d0");
    cluster_.close_gateway("p0");
    cluster_.forget(request);
  };
  for (std::size_t tasks = 0; tasks < 120; ++tasks) {
    // A step is one turn here, and the end of a connection takes two to be seen.
    ASSERT_NO_FATAL_FAILURE(end_after(tasks, "p0", lose, 2));
    ASSERT_TRUE(cluster_.run_until([&] {  // they dial again
      return cluster_.channel("d0") != nullptr && cluster_.channel("p0") != nullptr;
    }));
  }
}

TEST_F(NodesCancel, WaitingRequestTakesNoBlocksAfterwards) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest first = make_request(1, 100, 6, 1);
  const GenerateRequest second = make_request(2, 100, 6, 2);
  cluster_.start(first, "p0", "d0");
  cluster_.start(second, "p0", "d0");
  cluster_.executor().run_until_idle();
  ASSERT_EQ(cluster_.node("p0").prefill().scheduler().num_waiting(), 1U);
  const std::size_t before = steps("p0");
  cluster_.cancel(second);
  cluster_.executor().run_until_idle();
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 1U);
  EXPECT_EQ(cancelled("p0", "prefill", "waiting"), 1);
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.finish(first);
  expect_same(first);
  EXPECT_EQ(steps("p0"), before);
  cluster_.settle();
}

// The prefill cache is smaller than what is asked for and the link is slow: blocks that are still
// being read are not taken for the next prompt.
TEST_F(NodesCancel, BlocksOnASlowLinkAreNotUsedForTheNextPrompt) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    requests.push_back(make_request(i, 100, 6, i));
    cluster_.start(requests.back(), "p0", "d0");
  }
  cluster_.cancel(requests[1]);
  cluster_.executor().run_until_idle();
  network_.set_hook(nullptr);
  network_.release_stalled();
  for (const std::size_t i : {0, 2, 3}) {
    cluster_.finish(requests[i]);
    expect_same(requests[i]);
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesCancel, FailedTransferEndsBothLegsWithoutTheGateway) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Fail; });
  const GenerateRequest request = make_request(1, 60, 6);
  cluster_.start(request, "p0", "d0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_TRUE(is_retryable(answer.error->code));
  cluster_.settle();
  EXPECT_EQ(cluster_.node("d0").decode().grants().num_open(), 0U);
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  EXPECT_TRUE(cluster_.all_clean());
}

}  // namespace
}  // namespace baton::testing
