// A prefill node with a second tier: what its arena had no room for comes back from the file, and
// the tokens are the same.
#include <gtest/gtest.h>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

ClusterConfig with_file() {
  ClusterConfig config;
  config.kv.file_tier = ::testing::TempDir();
  config.kv.file_tier_mb = 1;
  return config;
}

class NodesFileTier : public NodesFixture {
 protected:
  explicit NodesFileTier(bool has_threads = false) : NodesFixture(with_file()) {
    if (has_threads) {
      cluster_.use_engine_threads();
    }
    cluster_.add("decode", "d0", 200);
    cluster_.add("decode", "d1", 200);
    cluster_.add("prefill", "p0", 20);
  }

  const Answer& ask(const GenerateRequest& request, const std::string& decode = "d0") {
    cluster_.start(request, "p0", decode);
    const Answer& answer = cluster_.finish(request);
    expect_same(request);
    settle();
    return answer;
  }
  // Every copy that is due is made.
  void settle() {
    cluster_.settle();
    cluster_.executor().advance(std::chrono::milliseconds(500));
    cluster_.run_until([this] { return tier().is_quiet(); });
    cluster_.settle();
    EXPECT_TRUE(cluster_.all_clean());
  }
  // p0 has computed `request`, and other prompts have taken the places of its blocks since.
  void compute_and_push_out(const GenerateRequest& request) {
    ask(request);
    for (int i = 0; i < 4; ++i) {
      ++others_;
      ask(make_request(90'000 + others_, 100, 1, 90'000 + others_));
    }
    EXPECT_EQ(cluster_.node("p0").kv().index().peek(request.prompt, 99), 0U);
  }
  engine::FileTier& tier() { return cluster_.node("p0").tier(); }
  std::uint64_t others_ = 0;
  std::uint64_t computed() { return cluster_.node("p0").runner().num_tokens(); }
};

TEST_F(NodesFileTier, PromptThatWasPushedOutIsBroughtBack) {
  const GenerateRequest first = make_request(1, 100, 5);
  compute_and_push_out(first);
  GenerateRequest again = first;
  again.id = RequestId{2};
  const std::uint64_t before = computed();
  // By way of a decode node that has nothing of it, so that all blocks are sent from p0's arena.
  const Answer& answer = ask(again, "d1");
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 96U);
  EXPECT_EQ(answer.figures.at("p0").pulled_tokens, 0U);
  EXPECT_EQ(answer.figures.at("d1").kv_bytes_moved,
            7 * cluster_.node("d1").kv().layout().block_bytes_all_layers());
  EXPECT_EQ(computed() - before, 4U);
  const std::string labels = R"({model_name="scripted",role="prefill"})";
  EXPECT_EQ(cluster_.node("p0").metric("vllm:external_prefix_cache_hits_total" + labels), 96);
  EXPECT_EQ(cluster_.node("p0").metric("baton_kv_file_broken_blocks_total"), 0);
}

TEST_F(NodesFileTier, PromptWhoseTokensAreScoredIsComputed) {
  const GenerateRequest first = make_request(1, 100, 5);
  compute_and_push_out(first);
  GenerateRequest again = first;
  again.id = RequestId{2};
  again.prompt_logprobs = 0;
  const Answer& answer = ask(again, "d1");
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 0U);
  EXPECT_FALSE(answer.prompt_logprobs.empty());
  EXPECT_EQ(tier().stats().hit_tokens, 0U);
}

class NodesFileTierThreads : public NodesFileTier {
 protected:
  NodesFileTierThreads() : NodesFileTier(true) {}
};

TEST_F(NodesFileTierThreads, PromptThatWasPushedOutIsBroughtBack) {
  const GenerateRequest first = make_request(1, 100, 5);
  compute_and_push_out(first);
  GenerateRequest again = first;
  again.id = RequestId{2};
  EXPECT_EQ(ask(again, "d1").figures.at("p0").cached_tokens, 96U);
}

TEST_F(NodesFileTier, BrokenFileCostsTimeOnly) {
  const GenerateRequest first = make_request(1, 100, 5);
  compute_and_push_out(first);
  for (std::uint32_t i = 0; i < tier().file().num_slots(); ++i) {
    tier().file().slot(i)[5] ^= std::byte{1};
  }
  GenerateRequest again = first;
  again.id = RequestId{2};
  EXPECT_EQ(ask(again, "d1").figures.at("p0").cached_tokens, 0U);
  EXPECT_EQ(tier().stats().broken, 1U);
}

TEST_F(NodesFileTier, CancelAfterAnyTaskLeavesNoBlockBehind) {
  for (std::uint64_t tasks = 0; tasks < 40; ++tasks) {
    const GenerateRequest first = make_request(1'000 + tasks, 100, 1, tasks);
    compute_and_push_out(first);
    GenerateRequest again = first;
    again.id = RequestId{5'000 + tasks};
    cluster_.start(again, "p0", "d1");
    for (std::uint64_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    cluster_.cancel(again);
    settle();
    ASSERT_TRUE(tier().is_quiet()) << tasks;
  }
  EXPECT_GT(tier().stats().hit_tokens, 0U);
}

}  // namespace
}  // namespace baton::testing
