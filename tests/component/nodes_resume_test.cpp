// Requests that arrive with tokens generated elsewhere: every continuation equals the undisturbed
// run.
#include <gtest/gtest.h>

#include "tests/support/fake_transport.h"
#include "tests/support/mini_cluster.h"

namespace baton::testing {
namespace {

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest()
      : cluster_([this](const std::string& name,
                        KvArenaView arena) { return network_.make_transport(name, arena); },
                 model_,
                 config()) {}

  static ClusterConfig config() {
    ClusterConfig config;
    config.decode.local_prefill_max_tokens = 64;
    return config;
  }

  // `whole` cut after `count` tokens, as the next attempt under another id.
  static GenerateRequest cut(const GenerateRequest& whole,
                             const std::vector<TokenId>& output,
                             std::size_t count,
                             std::uint64_t id) {
    GenerateRequest request = whole;
    request.id = RequestId{id};
    request.attempt = Attempt{1};
    request.output.assign(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(count));
    return request;
  }

  // The continuation, checked token for token and index for index.
  void expect_continues(const GenerateRequest& request,
                        const std::vector<TokenId>& output,
                        const std::string& prefill) {
    cluster_.start(request, prefill, "d0");
    const Answer& answer = cluster_.finish(request);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_FALSE(answer.repeated);
    std::map<std::uint32_t, TokenId> expected;
    for (std::size_t i = request.output.size(); i < output.size(); ++i) {
      expected[static_cast<std::uint32_t>(i)] = output[i];
    }
    EXPECT_EQ(answer.tokens, expected) << request.output.size();
    EXPECT_EQ(answer.finish, FinishReason::Length);
    cluster_.settle();
    EXPECT_TRUE(cluster_.all_clean());
  }

  const ScriptedOptions model_;
  FakeNetwork network_{
      [this](std::function<void()> task) { cluster_.executor().post(std::move(task)); }};
  MiniCluster cluster_;
};

TEST_F(ResumeTest, AtEveryTokenThroughBothNodes) {
  cluster_.add("decode", "d0", 64);
  cluster_.add("prefill", "p0", 64);
  GenerateRequest whole = make_request(1, 27, 40);  // past several blocks of sixteen
  whole.sampling.temperature = 1.0F;
  whole.sampling.seed = 5;
  const std::vector<TokenId> output = scripted_output(model_, whole);
  ASSERT_EQ(output.size(), 40U);
  for (std::size_t count = 1; count < output.size(); ++count) {
    expect_continues(cut(whole, output, count, 100 + count), output, "p0");
  }
}

TEST_F(ResumeTest, AtEveryTokenOnTheDecodeNodeAlone) {
  cluster_.add("decode", "d0", 64);
  GenerateRequest whole = make_request(1, 27, 40);  // grows over local_prefill_max_tokens
  const std::vector<TokenId> output = scripted_output(model_, whole);
  for (std::size_t count = 1; count < output.size(); ++count) {
    expect_continues(cut(whole, output, count, 100 + count), output, "");
  }
}

TEST_F(ResumeTest, FindsWhatTheNodesHaveCached) {
  cluster_.add("decode", "d0", 64);
  cluster_.add("prefill", "p0", 64);
  const GenerateRequest whole = make_request(1, 27, 40);
  const std::vector<TokenId> output = scripted_output(model_, whole);
  expect_continues(whole, output, "p0");
  const GenerateRequest resumed = cut(whole, output, 30, 2);
  expect_continues(resumed, output, "p0");
  // 57 tokens of context: three whole blocks that decode sealed itself, generated tokens in them.
  EXPECT_EQ(cluster_.answer(resumed).figures.at("d0").prefix_blocks_held, 3U);
  const GenerateRequest local = cut(whole, output, 30, 3);
  expect_continues(local, output, "");
  EXPECT_EQ(cluster_.answer(local).figures.at("d0").cached_tokens, 48U);
}

TEST_F(ResumeTest, ABiggerOutputThanTheLimitIsRefused) {
  cluster_.add("decode", "d0", 64);
  GenerateRequest request = make_request(1, 27, 5);
  request.output = {1, 2, 3, 4, 5};
  cluster_.start(request, "", "d0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::ProtocolError);
}

}  // namespace
}  // namespace baton::testing
