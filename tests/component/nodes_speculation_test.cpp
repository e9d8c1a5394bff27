// Requests that decode with guesses: the same tokens through both nodes, after a resume in the
// middle of what was guessed, under preemption, in the colocated mode; nothing is left behind.
#include <gtest/gtest.h>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

ClusterConfig speculative(const std::string& mode) {
  ClusterConfig config = small_chunks();
  config.prefill.credits = 8;  // the test's gateway does not count them
  config.decode.speculation.mode = mode;
  config.decode.speculation.draft_model = "scripted";
  config.decode.speculation.max_tokens = 6;
  config.decode.speculation.min_match = 2;
  config.decode.local_prefill_max_tokens = 64;
  config.decode.expected_output_tokens = 16;
  return config;
}

class NodesSpeculationTest : public NodesFixture,
                             public ::testing::WithParamInterface<const char*> {
 protected:
  NodesSpeculationTest() : NodesFixture(speculative(GetParam())) {
    model_.habits = 5;
    cluster_.use_model(model_);
  }

  double accepted(const std::string& node) {
    return cluster_.node(node).metric("baton_decode_accepted_tokens_total");
  }
};

TEST_P(NodesSpeculationTest, ManyAtOnceThroughBothNodes) {
  cluster_.add("decode", "d0", 200);
  cluster_.add("prefill", "p0", 200);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 6; ++i) {
    requests.push_back(make_request(10 + i, 20 + 37 * i, 40 + 5 * i, i));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    requests.back().sampling.seed = i;
    requests.back().min_tokens = i % 3 == 0 ? 20 : 0;
    requests.back().stop_tokens = {static_cast<TokenId>(1 + i)};
    cluster_.start(requests.back(), i == 0 ? "" : "p0", "d0");
  }
  for (const GenerateRequest& request : requests) {
    cluster_.finish(request);
    expect_same(request);
  }
  EXPECT_GT(accepted("d0"), 20);
  EXPECT_GE(cluster_.node("d0").metric("baton_decode_drafted_tokens_total"), accepted("d0"));
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesSpeculationTest, TheNodeDiesAmongGuesses) {
  cluster_.add("decode", "d0");
  cluster_.add("decode", "d1");
  cluster_.add("prefill", "p0");
  const GenerateRequest whole = make_request(1, 40, 150);
  cluster_.start(whole, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return accepted("d0") > 15; }));
  cluster_.kill("d0");
  const GenerateRequest next = resumed(whole);
  ASSERT_LT(next.output.size(), 150U);
  cluster_.start(next, "p0", "d1");
  cluster_.finish(next);
  expect_resumed_same(whole, next);
  EXPECT_GT(accepted("d1"), 0);
  cluster_.settle();
}

TEST_P(NodesSpeculationTest, PreemptedOnesGoOn) {
  cluster_.add("decode", "d0", 24);
  cluster_.add("prefill", "p0");
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(1 + i, 30, 120, i));
    cluster_.start(requests.back(), "p0", "d0");
  }
  std::uint32_t preempted = 0;
  for (const GenerateRequest& request : requests) {
    if (cluster_.finish(request).error) {
      EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::Preempted);
      ++preempted;
      const GenerateRequest next = resumed(request);
      cluster_.start_whole(next, "p0", "d0");
      cluster_.finish(next);
      expect_resumed_same(request, next);
    } else {
      expect_same(request);
    }
  }
  EXPECT_GT(preempted, 0U);
  EXPECT_GT(accepted("d0"), 50);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesSpeculationTest, WhatWasGuessedRightIsCached) {
  cluster_.add("decode", "d0");
  const GenerateRequest first = make_request(1, 30, 100);
  cluster_.start(first, "", "d0");
  cluster_.finish(first);
  expect_same(first);
  EXPECT_GT(accepted("d0"), 10);
  GenerateRequest second = first;  // a second turn of the same conversation
  second.id = RequestId{2};
  const auto output = cluster_.answer(first).output();
  second.prompt.insert(second.prompt.end(), output.begin(), output.end() - 3);
  second.prompt.push_back(77);
  cluster_.start(second, "", "d0");
  const Answer& answer = cluster_.finish(second);
  expect_same(second);
  EXPECT_GE(answer.figures.at("d0").cached_tokens, 112U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

INSTANTIATE_TEST_SUITE_P(Modes, NodesSpeculationTest, ::testing::Values("ngram", "draft"));

}  // namespace
}  // namespace baton::testing
