// Tensor parallel: one, two and four ranks give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/rank_shares.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

using kernels::DType;
using testing::make_backend;
using testing::open_tiny;
using testing::Sequences;

constexpr std::uint32_t kPieces = 4;
constexpr std::size_t kTokens = 70;

// A model on several ranks, each with one thread.
struct Ranks {
  Ranks(const ModelFile& file, const std::string& backend, std::uint32_t ranks) {
    std::vector<kernels::Backend*> borrowed;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      backends.push_back(make_backend(backend));
      borrowed.push_back(backends.back().get());
    }
    auto made = make_runner(file, borrowed, {.max_step_tokens = 128, .partial_sums = kPieces});
    EXPECT_TRUE(made) << made.error().message;
    runner = std::move(*made);
  }
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::unique_ptr<ModelRunner> runner;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<TokenId> some_tokens(std::uint32_t vocab) {
  std::vector<TokenId> out;
  for (std::uint32_t i = 0; i < kTokens; ++i) {
    out.push_back(static_cast<TokenId>(i * 7919U % vocab));
  }
  return out;
}

struct Case {
  std::string architecture;
  DType dtype;
  std::string backend;
};

class RankTest : public ::testing::TestWithParam<Case> {
 protected:
  const std::unique_ptr<const ModelFile> file_ =
      open_tiny(baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype));
};

TEST_P(RankTest, LogitsAreTheSameBits) {
  const Ranks one(*file_, GetParam().backend, 1);
  const auto tokens = some_tokens(one.runner->info().vocab_size);
  const auto expected = Sequences(*one.runner, 1, kTokens).logits(0, tokens, kTokens);
  for (const std::uint32_t ranks : {2U, 4U}) {
    const Ranks several(*file_, GetParam().backend, ranks);
    EXPECT_EQ(several.runner->info().numerics_hash, one.runner->info().numerics_hash);
    EXPECT_EQ(several.runner->info().row_products, one.runner->info().row_products);
    Sequences sequences(*several.runner, 2, kTokens);
    EXPECT_TRUE(same_bits(expected, sequences.logits(0, tokens, kTokens))) << ranks << " ranks";
    EXPECT_TRUE(same_bits(expected, sequences.logits(1, tokens, 9))) << ranks << " ranks";
  }
}

TEST_P(RankTest, ALayerIsDoneWhenEveryRankHasWrittenIt) {
  const Ranks one(*file_, GetParam().backend, 1);
  const Ranks two(*file_, GetParam().backend, 2);
  const auto tokens = some_tokens(one.runner->info().vocab_size);
  // The arena's layer as it is when the layer is said to be done.
  const auto layers_of = [&](const Ranks& ranks) {
    Sequences sequences(*ranks.runner, 1, kTokens);
    std::vector<std::vector<std::byte>> out;
    const StepPlan plan{{sequences.slice(0, tokens, 0)}};
    const KvArenaView& arena = sequences.arena();
    ranks.runner->run(plan, arena, [&](std::uint32_t layer) {
      EXPECT_EQ(layer, out.size());
      const std::byte* begin = arena.base + layer * arena.layer_stride();
      out.emplace_back(begin, begin + arena.layer_stride());
    });
    return out;
  };
  const auto expected = layers_of(one);
  EXPECT_EQ(expected.size(), one.runner->info().layout.layers);
  EXPECT_EQ(expected, layers_of(two));
}

TEST_P(RankTest, SampledAnswersAreTheSame) {
  const Ranks one(*file_, GetParam().backend, 1);
  const Ranks two(*file_, GetParam().backend, 2);
  const auto tokens = some_tokens(one.runner->info().vocab_size);
  const SamplingParams params{.temperature = 0.9F, .seed = 4, .num_logprobs = 2};
  const auto answer = [&](const Ranks& ranks, std::size_t chunk) {
    return Sequences(*ranks.runner, 1, 2 * kTokens).generate(0, tokens, 20, chunk, params);
  };
  EXPECT_EQ(answer(one, 64), answer(two, 13));
}

std::vector<Case> cases() {
  std::vector<Case> out{{"llama", DType::F32, "reference"}};
  for (const char* architecture : {"llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
    for (const DType dtype : {DType::F32, DType::Q4_1, DType::Q4_K}) {
      out.push_back({architecture, dtype, "cpu1"});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, RankTest, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.architecture + "_" + std::string(kernels::info(info.param.dtype).name) + "_" +
         info.param.backend;
});

// One piece is another sum than four: nodes of the two kinds must not pair.
TEST(Ranks, PartialSumsAreAnotherNumerics) {
  const auto file = open_tiny(baton::testing::tiny_model_for("llama", DType::F32));
  const Ranks pieces(*file, "cpu1", 1);
  const auto backend = make_backend("cpu1");
  const auto whole = make_runner(*file, *backend, {.max_step_tokens = 128});
  ASSERT_TRUE(whole);
  EXPECT_NE((*whole)->info().numerics_hash, pieces.runner->info().numerics_hash);
}

TEST(Ranks, WhatCannotBeCutIsRefusedByName) {
  const auto mixture = open_tiny(baton::testing::tiny_model_for("qwen3moe", DType::F32));
  const auto spec = mixture->decoder_spec();
  ASSERT_TRUE(spec);
  const auto experts = rank_shares(*mixture, *spec, 512, kPieces, 2);
  ASSERT_FALSE(experts);
  EXPECT_THAT(experts.error().message, ::testing::HasSubstr("experts"));
  const auto plain = open_tiny(baton::testing::tiny_model_for("llama", DType::F32));
  const auto plain_spec = plain->decoder_spec();
  ASSERT_TRUE(plain_spec);
  for (const auto& [pieces, ranks] : {std::pair{1U, 2U}, {4U, 3U}, {2U, 2U}, {4U, 8U}}) {
    EXPECT_FALSE(rank_shares(*plain, *plain_spec, 512, pieces, ranks)) << pieces << " " << ranks;
  }
  EXPECT_FALSE(rank_shares(*plain, *plain_spec, 32, kPieces, 2));
}

// Every head, feature and token belongs to exactly one rank.
TEST(Ranks, SharesCoverTheModel) {
  auto options = baton::testing::tiny_model_for("llama", DType::F32);
  options.heads = 9;
  options.kv_heads = 3;
  const auto file = open_tiny(options);
  const auto spec = file->decoder_spec();
  ASSERT_TRUE(spec);
  for (const std::uint32_t ranks : {1U, 2U, 4U}) {
    const auto shares = rank_shares(*file, *spec, 500, kPieces, ranks);
    ASSERT_TRUE(shares) << shares.error().message;
    std::uint32_t heads = 0;
    std::uint32_t features = 0;
    std::uint32_t tokens = 0;
    for (const RankShare& share : *shares) {
      for (const IndexRange& piece : share.attention.own) {
        EXPECT_EQ(piece.first, heads);
        heads += piece.count;
      }
      for (const IndexRange& piece : share.feed_forward.own) {
        EXPECT_EQ(piece.first, features);
        features += piece.count;
      }
      EXPECT_EQ(share.own_vocab().first, tokens);
      tokens += share.own_vocab().count;
    }
    EXPECT_EQ(heads, 3U);
    EXPECT_EQ(features, spec->ffn);
    EXPECT_EQ(tokens, 500U);
  }
}

}  // namespace
}  // namespace baton::engine
