// Requests with a grammar: the same tokens through both nodes, in the colocated mode, with guesses,
// and after a resume; every answer is of the grammar; what does not compile ends with its error.
#include <gtest/gtest.h>

#include <regex>

#include "tests/component/nodes_fixture.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::testing {
namespace {

constexpr const char* kRegex = "([a-e]{3}-){8,20}[0-9]+x";

ClusterConfig with_grammars(const std::string& speculation) {
  ClusterConfig config = small_chunks();
  config.decode.speculation.mode = speculation;
  config.decode.speculation.draft_model = "scripted";
  config.decode.speculation.max_tokens = 5;
  config.decode.speculation.min_match = 2;
  config.decode.local_prefill_max_tokens = 256;
  return config;
}

class NodesGrammarTest : public NodesFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  NodesGrammarTest() : NodesFixture(with_grammars(GetParam())) {
    model_.habits = 300;
    cluster_.use_model(model_);
    for (const char* name : {"d0", "d1"}) {
      cluster_.add("decode", name, 200);
    }
    cluster_.add("prefill", "p0", 200);
  }

  GenerateRequest request(std::uint64_t id, std::uint64_t seed) {
    GenerateRequest request = make_request(id, 30, 400);
    request.prompt.assign(30, static_cast<TokenId>(seed));
    request.sampling.seed = seed;
    request.stop_tokens = {kByteEnd, kByteEos};
    request.grammar = {Grammar::Kind::Regex, kRegex};
    return request;
  }
  static std::string text_of(std::span<const TokenId> tokens) {
    std::string text;
    for (const TokenId token : tokens) {
      text += token < 256 ? std::string(1, static_cast<char>(token)) : "";
    }
    return text;
  }
};

TEST_P(NodesGrammarTest, AnswersAreOfTheGrammarAndTheSameWhereverTheyAreMade) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const GenerateRequest apart = request(seed, seed);
    const GenerateRequest together = request(100 + seed, seed);
    cluster_.start(apart, "p0", "d0");
    cluster_.start(together, "", "d1");
    cluster_.finish(apart);
    cluster_.finish(together);
    const Answer& answer = cluster_.answer(apart);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_FALSE(answer.repeated);
    EXPECT_EQ(answer.output(), cluster_.answer(together).output());
    EXPECT_EQ(answer.finish, FinishReason::Stop);
    EXPECT_TRUE(std::regex_match(text_of(answer.output()), std::regex(kRegex)))
        << text_of(answer.output());
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesGrammarTest, AResumeGoesOnInTheGrammar) {
  const GenerateRequest whole = request(1, 7);
  const GenerateRequest other = request(2, 7);
  cluster_.start(other, "p0", "d1");
  cluster_.finish(other);
  cluster_.start(whole, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(whole).tokens.size() > 9; }));
  cluster_.kill("d0");
  const GenerateRequest next = resumed(whole);
  cluster_.start(next, "p0", "d1");
  cluster_.finish(next);
  ASSERT_FALSE(cluster_.answer(next).error);
  auto tokens = next.output;
  const auto rest = cluster_.answer(next).output();
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens, cluster_.answer(other).output());
  cluster_.settle();
}

TEST_P(NodesGrammarTest, WhatDoesNotCompileEndsWithItsError) {
  for (const char* prefill : {"p0", ""}) {
    GenerateRequest bad = request(prefill[0] == 'p' ? 1 : 2, 1);
    bad.grammar = {Grammar::Kind::JsonSchema, R"({"not": {}})"};
    cluster_.start(bad, prefill, "d0");
    cluster_.finish(bad);
    ASSERT_TRUE(cluster_.answer(bad).error);
    EXPECT_EQ(cluster_.answer(bad).error->code, ErrorCode::InvalidArgument);
    EXPECT_NE(cluster_.answer(bad).error->message.find("'not'"), std::string::npos);
    cluster_.cancel(bad);  // as a gateway does when one leg fails
  }
  GenerateRequest foreign = request(3, 1);
  foreign.output = byte_tokens("xyz");
  cluster_.start(foreign, "p0", "d0");
  cluster_.finish(foreign);
  ASSERT_TRUE(cluster_.answer(foreign).error);
  EXPECT_EQ(cluster_.answer(foreign).error->code, ErrorCode::InvalidArgument);
  cluster_.cancel(foreign);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesGrammarTest, CancelledWhileItsGrammarIsCompiled) {
  const GenerateRequest gone = request(1, 1);
  cluster_.start(gone, "", "d0");
  cluster_.cancel(gone);
  const GenerateRequest next = request(2, 1);
  cluster_.start(next, "p0", "d0");
  cluster_.finish(next);
  EXPECT_FALSE(cluster_.answer(next).error);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

INSTANTIATE_TEST_SUITE_P(Speculation,
                         NodesGrammarTest,
                         ::testing::Values("off", "ngram", "draft"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::testing
