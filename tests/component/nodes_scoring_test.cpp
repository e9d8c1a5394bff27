// Log-probabilities of a prompt, and requests with one prompt that are computed once.
#include <gtest/gtest.h>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

class NodesScoring : public NodesFixture {
 protected:
  explicit NodesScoring(ClusterConfig config = small_chunks()) : NodesFixture(std::move(config)) {}

  // Each token of the prompt from the second on, in order, with its alternatives.
  void expect_scored(const GenerateRequest& request) {
    const Answer& answer = cluster_.answer(request);
    ASSERT_EQ(answer.prompt_logprobs.size(), request.prompt.size() - 1);
    ASSERT_EQ(answer.prompt_top_logprobs.size(), request.prompt.size() - 1);
    for (std::size_t i = 0; i + 1 < request.prompt.size(); ++i) {
      EXPECT_EQ(answer.prompt_logprobs[i].token, request.prompt[i + 1]) << i;
      EXPECT_EQ(answer.prompt_top_logprobs[i].size(),
                static_cast<std::size_t>(request.prompt_logprobs))
          << i;
    }
  }
};

TEST_F(NodesScoring, PromptIsScoredInChunksAlsoWhenItIsCached) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest plain = make_request(1, 100, 6);
  cluster_.start(plain, "p0", "d0");
  cluster_.finish(plain);
  EXPECT_TRUE(cluster_.answer(plain).prompt_logprobs.empty());
  GenerateRequest scored = plain;
  scored.id = RequestId{2};
  scored.prompt_logprobs = 3;
  cluster_.start(scored, "p0", "d0");
  const Answer& answer = cluster_.finish(scored);
  expect_same(scored);
  expect_scored(scored);
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 0U);
  // A resume has given them before.
  const GenerateRequest next = [&] {
    GenerateRequest request = scored;
    request.max_tokens = 12;
    request.output = scripted_output(model_, scored);
    request.id = RequestId{3};
    return request;
  }();
  cluster_.start(next, "p0", "d0");
  EXPECT_TRUE(cluster_.finish(next).prompt_logprobs.empty());
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesScoring, APromptOfOneTokenHasNothingToScore) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  GenerateRequest request = make_request(1, 1, 3);
  request.prompt_logprobs = 0;
  cluster_.start(request, "p0", "d0");
  cluster_.finish(request);
  expect_same(request);
  EXPECT_TRUE(cluster_.answer(request).prompt_logprobs.empty());
}

TEST_F(NodesScoring, RequestsWithOnePromptComputeItOnce) {
  cluster_.add("decode", "d0", 200);
  cluster_.add("prefill", "p0", 200);
  std::vector<GenerateRequest> twins;
  for (std::uint32_t i = 0; i < 4; ++i) {
    twins.push_back(make_request(10 + i, 100, 8));
    twins.back().choice = i;
    twins.back().sampling.temperature = 1.0F;
    cluster_.start(twins.back(), "p0", "d0");
  }
  for (const GenerateRequest& twin : twins) {
    cluster_.finish(twin);
    expect_same(twin);
  }
  // Six blocks of sixteen tokens are shared; the last four tokens of each are its own.
  EXPECT_EQ(cluster_.node("p0").runner().num_tokens(), 100U + 3 * 4);
  EXPECT_EQ(cluster_.answer(twins[0]).figures.at("p0").cached_tokens, 0U);
  EXPECT_EQ(cluster_.answer(twins[3]).figures.at("p0").cached_tokens, 96U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesScoring, ATwinWhoseFirstIsCancelledIsComputed) {
  cluster_.add("decode", "d0", 200);
  cluster_.add("prefill", "p0", 200);
  const GenerateRequest first = make_request(1, 100, 8);
  GenerateRequest second = first;
  second.id = RequestId{2};
  cluster_.start(first, "p0", "d0");
  cluster_.start(second, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([this] { return steps("p0") > 2; }));
  cluster_.cancel(first);
  cluster_.finish(second);
  expect_same(second);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

// F5. Four answers to one prompt, two of them cancelled at any moment: no block is left behind, and
// the others are what they are alone.
TEST_F(NodesScoring, TwinsCancelledAfterAnyTaskLeaveNoBlockBehind) {
  cluster_.add("decode", "d0", 200);
  cluster_.add("prefill", "p0", 200);
  for (std::size_t tasks = 0; tasks < 250; tasks += 3) {
    std::vector<GenerateRequest> twins;
    for (std::uint32_t i = 0; i < 4; ++i) {
      twins.push_back(make_request(1000 + 4 * tasks + i, 90, 6, tasks));
      twins.back().choice = i;
      twins.back().sampling.temperature = 1.0F;
      cluster_.start(twins.back(), "p0", "d0");
    }
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    cluster_.cancel(twins[tasks % 4]);
    cluster_.cancel(twins[(tasks + 1) % 4]);
    for (const std::size_t i : {(tasks + 2) % 4, (tasks + 3) % 4}) {
      cluster_.finish(twins[i]);
      expect_same(twins[i]);
    }
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << tasks;
    ASSERT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U) << tasks;
  }
}

class LocalScoring : public NodesScoring {
 protected:
  LocalScoring()
      : NodesScoring([] {
          ClusterConfig config;
          config.decode.local_prefill_max_tokens = 200;
          config.decode.local_prefill_chunk = 24;
          return config;
        }()) {}
};

TEST_F(LocalScoring, DecodeNodeScoresWhatItComputes) {
  cluster_.add("decode", "d0");
  const GenerateRequest plain = make_request(1, 60, 20);
  cluster_.start(plain, "", "d0");
  cluster_.finish(plain);
  GenerateRequest scored = plain;
  scored.id = RequestId{2};
  scored.prompt_logprobs = 1;
  cluster_.start(scored, "", "d0");
  EXPECT_EQ(cluster_.finish(scored).figures.at("d0").cached_tokens, 0U);
  expect_same(scored);
  expect_scored(scored);
}

}  // namespace
}  // namespace baton::testing
