// What the component tests of the nodes share: a small cluster over the in-memory data plane.
//
// Owner: a test. Thread: the test's. Failure: as MiniCluster.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/fake_transport.h"
#include "tests/support/mini_cluster.h"

namespace baton::testing {

class NodesFixture : public ::testing::Test {
 protected:
  explicit NodesFixture(ClusterConfig config = default_config())
      : cluster_([this](const std::string& name,
                        KvArenaView arena) { return network_.make_transport(name, arena); },
                 model_,
                 std::move(config)) {}

  // The whole answer came once, and is what a single process gives.
  void expect_same(const GenerateRequest& request) {
    const Answer& answer = cluster_.answer(request);
    EXPECT_FALSE(answer.error) << answer.error->message;
    EXPECT_FALSE(answer.repeated);
    EXPECT_EQ(answer.output(), scripted_output(model_, request)) << request.id.value;
  }

  // The request goes on where its answer stands: another attempt, under an id of its own.
  GenerateRequest resumed(const GenerateRequest& request) {
    GenerateRequest next = request;
    const auto output = cluster_.answer(request).output();
    next.output.insert(next.output.end(), output.begin(), output.end());
    next.id = RequestId{request.id.value + 1'000'000};
    next.attempt = Attempt{request.attempt.value + 1};
    return next;
  }

  // The last attempt of a request is over, and all of them together gave the tokens of `whole`.
  void expect_resumed_same(const GenerateRequest& whole, const GenerateRequest& last) {
    const Answer& answer = cluster_.answer(last);
    ASSERT_FALSE(answer.error) << answer.error->message;
    auto tokens = last.output;
    const auto rest = answer.output();
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    EXPECT_EQ(tokens, scripted_output(model_, whole)) << whole.id.value;
  }

  std::size_t steps(const std::string& node) { return cluster_.node(node).runner().num_steps(); }

  // As SIGSTOP and SIGCONT: neither thread of the process runs.
  void set_stopped(const std::string& node, bool is_stopped) {
    cluster_.set_stopped(node, is_stopped);
    network_.set_stuck(node, is_stopped);
    if (!is_stopped) {
      network_.release_stalled();
    }
  }

  void drain(const std::string& node, std::chrono::milliseconds limit) {
    wire::Frame frame;
    frame.mutable_drain()->set_limit_ms(static_cast<std::uint64_t>(limit.count()));
    bool is_accepted = false;
    cluster_.channel(node)->call(
        frame, std::chrono::seconds(5), [&](const Result<wire::Frame>& answer) {
          is_accepted = answer && answer->has_accepted();
        });
    EXPECT_TRUE(cluster_.run_until([&] { return is_accepted; }));
  }

  ScriptedOptions model_;
  FakeNetwork network_{
      [this](std::function<void()> task) { cluster_.executor().post(std::move(task)); }};
  MiniCluster cluster_;
};

inline ClusterConfig small_chunks() {
  ClusterConfig config;
  config.prefill.chunk_tokens = 7;
  config.prefill.step_tokens = 16;
  return config;
}

}  // namespace baton::testing
