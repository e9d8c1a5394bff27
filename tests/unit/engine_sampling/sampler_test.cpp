#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "common/base/keyed_random.h"

namespace baton::engine {
namespace {

std::vector<float> noise(std::size_t size, std::uint64_t seed, float spread) {
  std::vector<float> out(size);
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = spread * static_cast<float>(keyed_uniform(seed, 0, i) * 2 - 1);
  }
  return out;
}

SampledToken sample(std::vector<float> logits,
                    const SamplingParams& params,
                    std::vector<TokenId> prompt = {},
                    std::vector<TokenId> output = {},
                    std::vector<TokenId> barred = {},
                    std::uint32_t choice = 0) {
  Sampler sampler(logits.size());
  SequenceSlice slice;
  slice.sample = true;
  slice.sampling = &params;
  slice.choice = choice;
  slice.prompt = prompt;
  slice.output = output;
  slice.barred = barred;
  return sampler.sample(logits, slice);
}

// Frequencies over many positions of the draw.
std::map<TokenId, int> histogram(const std::vector<float>& logits,
                                 const SamplingParams& params,
                                 int draws) {
  Sampler sampler(logits.size());
  std::map<TokenId, int> counts;
  std::vector<TokenId> output;
  for (int i = 0; i < draws; ++i) {
    std::vector<float> row = logits;
    SequenceSlice slice;
    slice.sampling = &params;
    slice.output = output;
    ++counts[sampler.sample(row, slice).token];
    output.push_back(0);
  }
  return counts;
}

TEST(Sampler, BiasComesBeforeTheChoiceAndOutsideTokensAreIgnored) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{.token = 2, .bias = 5.0F}, {.token = 99, .bias = 100.0F}};
  EXPECT_EQ(sample({1.0F, 3.0F, 0.0F}, params).token, 2);
  params.logit_bias = {{.token = 1, .bias = -100.0F}};
  EXPECT_EQ(sample({1.0F, 3.0F, 0.0F}, params).token, 0);
}

TEST(Sampler, AMaskBarsWhatItDoesNotName) {
  class OneToken final : public TokenMask {
   public:
    std::span<const std::uint32_t> allowed(std::span<const TokenId> drafts) override {
      words_ = {0, 0};
      words_[1] = 1U << (drafts.size() + 1);  // token 33 behind no draft, 34 behind one
      return words_;
    }

   private:
    std::vector<std::uint32_t> words_;
  } mask;
  SamplingParams params;
  params.seed = 7;
  Sampler sampler(40);
  for (std::size_t drafts = 0; drafts < 2; ++drafts) {
    std::vector<float> row(40, 1.0F);
    row[0] = 50.0F;
    SequenceSlice slice;
    slice.sampling = &params;
    slice.mask = &mask;
    const std::vector<TokenId> guess = {33};
    slice.drafts = guess;
    EXPECT_EQ(sampler.sample(row, slice, drafts).token, static_cast<TokenId>(33 + drafts));
  }
}

TEST(KeyedUniform, DependsOnEveryPartOfTheKeyAndIsUniform) {
  EXPECT_EQ(keyed_uniform(1, 2, 3), keyed_uniform(1, 2, 3));
  EXPECT_NE(keyed_uniform(1, 2, 3), keyed_uniform(2, 2, 3));
  EXPECT_NE(keyed_uniform(1, 2, 3), keyed_uniform(1, 3, 3));
  EXPECT_NE(keyed_uniform(1, 2, 3), keyed_uniform(1, 2, 4));
  EXPECT_NE(keyed_uniform(1, 2, 3), keyed_uniform(1 + (1ULL << 40U), 2, 3));
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = keyed_uniform(7, 0, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.01);
}

TEST(Sampler, ZeroTemperatureIsArgmaxWithTheLowestIdOnATie) {
  for (const std::size_t size : {1U, 5U, 16U, 100U, 1003U}) {
    std::vector<float> logits = noise(size, size, 3);
    const std::size_t at = size / 2;
    logits[at] = 9;
    logits[size - 1] = 9;
    EXPECT_EQ(sample(logits, {.temperature = 0}).token, static_cast<TokenId>(at));
  }
  EXPECT_EQ(argmax(std::vector<float>(40, std::numeric_limits<float>::quiet_NaN())), 0);
}

TEST(Sampler, BarredTokensNeverWin) {
  std::vector<float> logits(50, 0.0F);
  logits[7] = 5;
  logits[9] = 4;
  EXPECT_EQ(sample(logits, {.temperature = 0}, {}, {}, {7, -1, 1000}).token, 9);
  const auto counts = histogram(logits, {.temperature = 2.0F}, 100);
  EXPECT_GT(counts.size(), 1U);
}

TEST(Sampler, LogprobsAreTheRawLogSoftmaxBestFirst) {
  std::vector<float> logits = noise(1000, 3, 4);
  logits[10] = 6;
  logits[20] = 5;
  logits[15] = 5;
  double sum = 0;
  for (const float v : logits) {
    sum += std::exp(static_cast<double>(v));
  }
  const SampledToken out =
      sample(logits, {.temperature = 0, .repetition_penalty = 3.0F, .num_logprobs = 3}, {10});
  ASSERT_EQ(out.top.size(), 3U);
  EXPECT_EQ(out.top[0].token, 10) << "penalties do not touch logprobs";
  EXPECT_EQ(out.top[1].token, 15);
  EXPECT_EQ(out.top[2].token, 20);
  EXPECT_NEAR(out.top[0].logprob, 6 - std::log(sum), 1e-5);
  EXPECT_EQ(out.token, 15) << "the penalty brings 6 down to 2";
  EXPECT_NEAR(out.logprob, 5 - std::log(sum), 1e-5);
  EXPECT_TRUE(sample(logits, {.temperature = 0, .num_logprobs = 0}).top.empty());
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  std::vector<float> logits(10, -5.0F);
  logits[1] = 2.0F;
  logits[2] = 1.5F;
  logits[3] = 1.2F;
  EXPECT_EQ(sample(logits, {.temperature = 0, .repetition_penalty = 1.5F}, {1, 1, 1}).token, 2)
      << "paid once, 2 / 1.5 < 1.5";
  EXPECT_EQ(sample(logits, {.temperature = 0, .repetition_penalty = 1.2F}, {1, 1, 1}).token, 1);
  EXPECT_EQ(sample(logits, {.temperature = 0, .presence_penalty = 0.6F}, {}, {1, 1}).token, 2);
  EXPECT_EQ(sample(logits, {.temperature = 0, .presence_penalty = 0.4F}, {}, {1, 1}).token, 1);
  EXPECT_EQ(sample(logits, {.temperature = 0, .frequency_penalty = 0.3F}, {}, {1, 1}).token, 2);
  EXPECT_EQ(sample(logits, {.temperature = 0, .presence_penalty = 2.0F}, {1, 1}).token, 1)
      << "presence counts output alone";
  // All three at once, twice with one sampler: the counts are clean afterwards.
  Sampler sampler(logits.size());
  const SamplingParams params{.temperature = 0,
                              .repetition_penalty = 2.0F,
                              .presence_penalty = 0.3F,
                              .frequency_penalty = 0.3F};
  const std::vector<TokenId> history{1, 2};
  for (int i = 0; i < 2; ++i) {
    std::vector<float> row = logits;
    SequenceSlice slice;
    slice.sampling = &params;
    slice.output = history;
    EXPECT_EQ(sampler.sample(row, slice).token, 3);
    EXPECT_FLOAT_EQ(row[1], 2.0F / 2 - 0.6F);
  }
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  constexpr int kDraws = 4000;
  for (const SamplingParams& params :
       {SamplingParams{.seed = 5}, {.top_k = 3, .seed = 6}, {.min_p = 0.01F, .seed = 7}}) {
    auto counts = histogram(logits, params, kDraws);
    EXPECT_NEAR(counts[0] / double{kDraws}, 0.5, 0.03);
    EXPECT_NEAR(counts[1] / double{kDraws}, 0.3, 0.03);
    EXPECT_NEAR(counts[2] / double{kDraws}, 0.2, 0.03);
  }
  auto sharp = histogram(logits, {.temperature = 0.5F, .seed = 8}, kDraws);
  EXPECT_NEAR(sharp[0] / double{kDraws}, 0.25 / 0.38, 0.03);
}

TEST(Sampler, CutsKeepTheRightTokens) {
  const std::vector<float> logits{
      std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  const auto kept = [&](SamplingParams params) {
    std::vector<TokenId> out;
    for (const auto& [token, count] : histogram(logits, params, 2000)) {
      out.push_back(token);
    }
    return out;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(kept({.top_k = 2}), (Ids{1, 2}));
  EXPECT_EQ(kept({.top_p = 0.6F}), (Ids{1, 2}));
  EXPECT_EQ(kept({.top_p = 0.75F}), (Ids{1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 0.01F}), (Ids{1}));
  EXPECT_EQ(kept({.min_p = 0.3F}), (Ids{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 1.0F}), (Ids{1}));
  EXPECT_EQ(kept({.top_p = 0.5F, .top_k = 2}), (Ids{1})) << "0.4 of 0.7 is enough";
  EXPECT_EQ(kept({.top_p = 0.999F}), (Ids{0, 1, 2, 3, 4}));
}

TEST(Sampler, WideDistributionsWidenTheSelection) {
  // Nearly flat: top_p 0.9 needs far more than the first candidates, and equals a full sort's cut.
  const std::vector<float> logits = noise(20'000, 11, 0.5F);
  std::vector<std::pair<float, TokenId>> sorted;
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sorted.emplace_back(-logits[i], static_cast<TokenId>(i));
    total += std::exp(static_cast<double>(logits[i]));
  }
  std::sort(sorted.begin(), sorted.end());
  double mass = 0;
  std::size_t cut = 0;
  while (mass < 0.9 * total) {
    mass += std::exp(-static_cast<double>(sorted[cut++].first));
  }
  const float threshold = -sorted[cut - 1].first;
  Sampler sampler(logits.size());
  const SamplingParams params{.top_p = 0.9F, .seed = 3};
  std::vector<TokenId> output;
  float lowest = 1;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> row = logits;
    SequenceSlice slice;
    slice.sampling = &params;
    slice.output = output;
    lowest = std::min(lowest, logits[static_cast<std::size_t>(sampler.sample(row, slice).token)]);
    output.push_back(0);
  }
  EXPECT_GE(lowest, threshold - 1e-3F);
  EXPECT_LT(lowest, threshold + 0.05F);
}

TEST(Sampler, DraftsCountAsTheEndOfTheOutput) {
  const std::vector<TokenId> output{3, 4, 3, 9, 9, 5};
  for (const float temperature : {0.0F, 1.0F}) {
    const SamplingParams params{.temperature = temperature,
                                .repetition_penalty = 1.3F,
                                .presence_penalty = 0.5F,
                                .frequency_penalty = 0.25F,
                                .seed = 8,
                                .num_logprobs = 3};
    for (std::size_t drafted = 0; drafted <= output.size(); ++drafted) {
      std::vector<float> row = noise(40, 11, 2.0F);
      const SampledToken whole = sample(row, params, {1, 2}, output);
      Sampler sampler(row.size());
      const std::vector<TokenId> prompt{1, 2};
      SequenceSlice slice;
      slice.sampling = &params;
      slice.prompt = prompt;
      slice.output = std::span(output).first(output.size() - drafted);
      std::vector<TokenId> drafts(output.end() - static_cast<std::ptrdiff_t>(drafted),
                                  output.end());
      drafts.push_back(7);  // not reached yet
      slice.drafts = drafts;
      const std::vector<float> before = row;
      const SampledToken split = sampler.sample(row, slice, drafted);
      EXPECT_EQ(split.token, whole.token);
      EXPECT_EQ(split.logprob, whole.logprob);
      // Nothing of one row stays for the next.
      row = before;
      EXPECT_EQ(sampler.sample(row, slice, drafted).token, whole.token);
    }
  }
}

TEST(Sampler, ChoiceAndSeedChangeTheDraw) {
  const std::vector<float> logits(1000, 0.0F);
  const TokenId first = sample(logits, {.seed = 1}).token;
  EXPECT_EQ(sample(logits, {.seed = 1}).token, first);
  EXPECT_NE(sample(logits, {.seed = 2}).token, first);
  EXPECT_NE(sample(logits, {.seed = 1}, {}, {}, {}, 1).token, first);
}

}  // namespace
}  // namespace baton::engine
