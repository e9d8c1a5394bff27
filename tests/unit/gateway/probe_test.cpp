// What operators see of requests: histogram edges at the targets, whom a queue waits for, and the
// list of ended requests.
#include "gateway/requests/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/dashboard/ended_requests.h"
#include "gateway/requests/waiting_on.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Probe, TargetsAreEdgesOfTheHistograms) {
  SloSection slo;
  slo.prefill = milliseconds(1234);
  slo.tiers[1].ttft = milliseconds(2500);  // an edge already
  slo.tiers[1].itl = milliseconds(37);
  Metrics metrics;
  const Probe probe(metrics, slo);
  probe.prefill.observe(1.0);
  probe.of("m").ttft[1].observe(0.1);
  const std::string text = metrics.to_text();
  EXPECT_THAT(text,
              HasSubstr(R"(baton_request_phase_seconds_bucket{phase="prefill",le="1.234"} 1)"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(baton_inter_token_latency_seconds_bucket{model_name="m",tier="default",le="0.037"} 0)"));
  const std::string edge =
      R"(
baton_time_to_first_token_seconds_bucket{model_name="m",tier="default",le="2.5"} 1)";
  ASSERT_THAT(text, HasSubstr(edge));
  EXPECT_THAT(text.substr(text.find(edge) + 1), Not(HasSubstr(edge))) << "the edge stands twice";
}

TEST(Probe, SpeaksTheNamesOfVllmWithARole) {
  Metrics metrics;
  const Probe probe(metrics);
  probe.of("m").generated_tokens.add(3);
  probe.of("other").generated_tokens.add(2);
  const std::string text = metrics.to_text();
  EXPECT_THAT(text, HasSubstr(R"(vllm:generation_tokens_total{model_name="m",role="gateway"} 3)"));
  EXPECT_THAT(text,
              HasSubstr(R"(vllm:generation_tokens_total{model_name="other",role="gateway"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(vllm:time_to_first_token_seconds_bucket{model_name="m",)"));
}

TEST(Probe, OneThatCountsNothingTakesEveryModel) {
  const Probe probe;
  probe.of("m").ttft[0].observe(1);
  EXPECT_EQ(probe.of("m").generated_tokens.value(), 0);
}

NodeView node(NodeRole role, std::uint32_t credits) {
  NodeView view;
  view.role = role;
  view.credits_left = credits;
  return view;
}

TEST(WaitingOn, PrefillIsFullWhenNoneOfItsNodesTakesMore) {
  using Nodes = std::vector<NodeView>;
  EXPECT_EQ(who_is_full(Nodes{node(NodeRole::Prefill, 0), node(NodeRole::Decode, 0)}),
            WaitingOn::Prefill);
  EXPECT_EQ(who_is_full(Nodes{node(NodeRole::Prefill, 0), node(NodeRole::Prefill, 1)}),
            WaitingOn::Decode);
  EXPECT_EQ(who_is_full(Nodes{node(NodeRole::Decode, 0)}), WaitingOn::Decode);
  NodeView draining = node(NodeRole::Prefill, 3);
  draining.is_draining = true;
  EXPECT_EQ(who_is_full(Nodes{draining}), WaitingOn::Prefill);
}

TEST(EndedRequests, KeepsTheLastOnesTheLatestFirst) {
  EndedRequests ended;
  EXPECT_EQ(ended.to_json(), "[]");
  for (std::uint64_t id = 1; id <= 100; ++id) {
    EndedRequest request;
    request.id = RequestId(id);
    request.model = "a\"b";
    request.tier = "default";
    request.how = "finished";
    ended.add(std::move(request));
  }
  const std::string json = ended.to_json();
  EXPECT_THAT(json, HasSubstr(R"([{"model":"a\"b")"));
  EXPECT_LT(json.find("0000000000000064"), json.find("0000000000000063"));
  EXPECT_THAT(json, HasSubstr(R"("id":"0000000000000025")"));       // 37
  EXPECT_THAT(json, Not(HasSubstr(R"("id":"0000000000000024")")));  // 36
  ASSERT_NE(ended.find(RequestId(1)), nullptr) << "kept, though not shown";
  EXPECT_EQ(ended.find(RequestId(101)), nullptr);
  for (std::uint64_t id = 101; id <= EndedRequests::kKept + 1; ++id) {
    ended.add({.id = RequestId(id)});
  }
  EXPECT_EQ(ended.find(RequestId(1)), nullptr) << "kept for ever";
  EXPECT_NE(ended.find(RequestId(2)), nullptr);
}

TEST(EndedRequests, AreFoundByTheirTrace) {
  EndedRequests ended;
  EndedRequest request;
  request.id = RequestId(5);
  request.trace.context.trace = {1, 2};
  request.trace.context.span = 3;
  const std::string trace = request.trace.context.trace_id();
  ended.add(std::move(request));
  ended.add({.id = RequestId(6)});
  ASSERT_NE(ended.find_trace(trace), nullptr);
  EXPECT_EQ(ended.find_trace(trace)->id, RequestId(5));
  EXPECT_EQ(ended.find_trace("00000000000000000000000000000000"), nullptr);
}

TEST(EndedRequests, IdsAreReadAsClientsSeeThem) {
  EXPECT_EQ(parse_request_id("chatcmpl-00000000000000ff"), RequestId(255));
  EXPECT_EQ(parse_request_id("req_00000000000000ff"), RequestId(255));
  EXPECT_EQ(parse_request_id("00000000000000ff"), RequestId(255));
  for (const char* other : {"",
                            "-",
                            "ff",
                            "chatcmpl-",
                            "000000000000000g",
                            "+00000000000000f",
                            "0000000000000000000000000000000f"}) {
    EXPECT_EQ(parse_request_id(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace baton::gateway
