// A tracker with membership and queue against scripted nodes over channels in memory, on a manual
// clock; and a sink that checks that no token comes twice or is missing.
//
// Owner: a test. Thread: the test's. Failure: what cannot be set up fails the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/exec/manual_executor.h"
#include "gateway/cluster/membership.h"
#include "gateway/cluster/route_health.h"
#include "gateway/requests/request_tracker.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/memory_channel.h"
#include "tests/support/scripted_node.h"

namespace baton::gateway {

using std::chrono::milliseconds;
using testing::NodeScript;
using testing::ScriptedNode;
using testing::ScriptedNodeOptions;

inline constexpr const char* kAddress = "127.0.0.1:7000";

class RecordingSink final : public AnswerSink {
 public:
  void on_tokens(TokenEvent event) override {
    EXPECT_EQ(event.index, tokens.size()) << "a token twice, or one is missing";
    EXPECT_FALSE(end) << "tokens after the end";
    logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  }
  void on_end(AnswerEnd answer_end) override {
    EXPECT_FALSE(end) << "a second end";
    end = std::move(answer_end);
  }

  std::string text() const {
    std::string out;
    for (const TokenId id : tokens) {
      out += id < 256 ? std::string(1, static_cast<char>(id)) : "$";
    }
    return out;
  }

  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::optional<AnswerEnd> end;
};

// When the first token and the end came, from when it was made.
class TimedSink final : public AnswerSink {
 public:
  explicit TimedSink(const Executor& executor) : executor_(executor), begin_(executor.now()) {}
  void on_tokens(TokenEvent event) override {
    if (event.index == 0 && !event.tokens.empty()) {
      first = executor_.now() - begin_;
    }
  }
  void on_end(AnswerEnd answer_end) override {
    end = std::move(answer_end);
    ended = executor_.now() - begin_;
  }
  bool is_refused() const { return end && end->error && end->error->status == 429; }

  std::optional<Duration> first;
  std::optional<Duration> ended;
  std::optional<AnswerEnd> end;

 private:
  const Executor& executor_;
  const TimePoint begin_;
};

class TrackerTest : public ::testing::Test {
 protected:
  void TearDown() override {
    cluster.reset();
    tracker.reset();
    membership.reset();
    executor.run_until_idle();
  }

  void start(TrackerOptions options = {}) {
    gateway_network = fabric.network("gateway");
    node_network = fabric.network("nodes");
    ClusterSection section;
    section.token = "secret";
    section.heartbeat = milliseconds(100);
    membership = std::make_unique<Membership>(
        executor,
        *gateway_network,
        log,
        section,
        "gateway",
        Incarnation{1},
        MembershipHandlers{
            [](Node&) {},
            [this](Node& node) { tracker->on_node_changed(node); },
            [this](Node& node, const wire::TokenFrame& frame) { tracker->on_tokens(node, frame); },
            [this](Node& node, const Error& why) { tracker->on_node_down(node, why); },
            [this](Node& node, const wire::KvEvents& events) {
              tracker->on_kv_events(node, events);
            },
            [this](Node& node, wire::Granted& granted) { tracker->on_granted(node, granted); }});
    tracker = std::make_unique<RequestTracker>(executor, *membership, health, log, probe, options);
    ASSERT_TRUE(membership->listen(kAddress));
    cluster = std::make_unique<testing::ScriptedCluster>(executor, *node_network);
  }

  // Names of decode nodes begin with a d.
  static ScriptedNodeOptions options_of(const std::string& name) {
    ScriptedNodeOptions options;
    options.name = name;
    options.role = name[0] == 'd' ? "decode" : "prefill";
    options.gateway = kAddress;
    options.token = "secret";
    return options;
  }
  static ScriptedNodeOptions with_other_weights(const std::string& name) {
    ScriptedNodeOptions options = options_of(name);
    options.weights_hash = 77;
    return options;
  }
  // Of a decode node without a place in its batch.
  static NodeScript full_batch() {
    NodeScript script;
    script.max_batch = 0;
    return script;
  }

  ScriptedNode& add(const std::string& name, NodeScript script = {}) {
    ScriptedNode& node = cluster->add(options_of(name), std::move(script));
    executor.advance(milliseconds(10));
    EXPECT_TRUE(node.is_up());
    return node;
  }

  // What a request asks for unless a test changes it.
  GenerateRequest request(std::uint64_t id, std::uint32_t max_tokens = 100) {
    GenerateRequest request;
    request.id = RequestId{id};
    request.model = "scripted";
    request.prompt = testing::byte_tokens("prompt");
    request.max_tokens = max_tokens;
    request.stop_tokens = {testing::kByteEnd};
    return request;
  }

  std::shared_ptr<RecordingSink> submit(GenerateRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    tracker->submit(Submission{std::move(request), executor.now(), sink});
    return sink;
  }

  std::shared_ptr<RecordingSink> submit(std::uint64_t id, std::uint32_t max_tokens = 100) {
    return submit(request(id, max_tokens));
  }

  void pass(int ms) { executor.advance(milliseconds(ms)); }

  // Nothing is booked on any node once all is quiet.
  void expect_quiet() {
    EXPECT_EQ(tracker->active(), 0U);
    EXPECT_EQ(tracker->queued(), 0U);
    for (const Node* node : membership->nodes()) {
      EXPECT_EQ(node->credits_used, 0U) << node->name;
      EXPECT_EQ(node->tokens_given, 0U) << node->name;
      EXPECT_EQ(node->sequences_given, 0U) << node->name;
    }
  }

  ManualExecutor executor;
  testing::MemoryFabric fabric{executor};
  const Logger log = Logger::silent();
  Metrics metrics;
  const Probe probe{metrics};
  RouteHealth health{log, nullptr, {}, [] {}};
  std::unique_ptr<Network> gateway_network;
  std::unique_ptr<Network> node_network;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<RequestTracker> tracker;
  std::unique_ptr<testing::ScriptedCluster> cluster;
};

}  // namespace baton::gateway
