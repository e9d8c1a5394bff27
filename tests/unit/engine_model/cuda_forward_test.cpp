// Whole forward passes of tiny models on the cuda backend over the emulated device: they agree with
// the reference, a row's bits depend on neither chunk nor batch nor how products are cut, and
// blocks go between the device and the arena in the host's memory when they must.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/emulated_device.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

using kernels::DType;
using testing::open_tiny;
using testing::Sequences;

constexpr std::size_t kTokens = 70;  // several blocks, past the tiny window
constexpr unsigned kFew = 1;         // multiprocessors: every product in one block
constexpr unsigned kMany = 132;

std::unique_ptr<kernels::Backend> emulated(unsigned multiprocessors = kMany) {
  auto backend =
      kernels::cuda::make_backend(baton::testing::make_emulated_device(multiprocessors), 1);
  EXPECT_TRUE(backend) << backend.error().message;
  return backend ? std::move(*backend) : nullptr;
}

struct Model {
  Model(const ModelFile& file, std::unique_ptr<kernels::Backend> by, KvDType dtype = KvDType::I16)
      : backend(std::move(by)) {
    auto made = make_runner(file, *backend, {.max_step_tokens = 128, .kv_dtype = dtype});
    EXPECT_TRUE(made) << made.error().message;
    runner = std::move(*made);
  }
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<ModelRunner> runner;
};

std::vector<TokenId> some_tokens(std::uint32_t vocab) {
  std::vector<TokenId> out;
  for (std::uint32_t i = 0; i < kTokens; ++i) {
    out.push_back(static_cast<TokenId>((i * 7919U + 13U) % vocab));
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Case {
  std::string architecture;
  DType dtype;
  KvDType kv;
};

class CudaForwardTest : public ::testing::TestWithParam<Case> {
 protected:
  static bool is_quantised() { return GetParam().dtype != DType::F32; }
  static baton::testing::TinyModelOptions options() {
    auto options = baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype);
    options.embedding_dtype = is_quantised() ? DType::Q8_0 : DType::F32;
    return options;
  }
  const std::unique_ptr<const ModelFile> file_ = open_tiny(options());
};

// Where two experts are nearly as good, the rounding of an activation decides between them, and the
// other's answer is no error of arithmetic. So beside quantised weights every expert is used; which
// are chosen is compared where weights are F32.
class CudaAgreementTest : public CudaForwardTest {};

TEST_P(CudaAgreementTest, AgreesWithTheReference) {
  auto options = CudaForwardTest::options();
  if (options.architecture == "qwen3moe" && is_quantised()) {
    options.experts = 4;
    options.experts_used = 4;
  }
  const auto file = open_tiny(options);
  const Model cuda(*file, emulated(), GetParam().kv);
  const Model reference(*file, kernels::make_reference_backend(), GetParam().kv);
  const auto tokens = some_tokens(cuda.runner->info().vocab_size);
  const auto got = Sequences(*cuda.runner, 1, kTokens).logits(0, tokens, kTokens);
  const auto want = Sequences(*reference.runner, 1, kTokens).logits(0, tokens, kTokens);
  ASSERT_EQ(got.size(), want.size());
  double errors = 0;
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << i;
    errors += std::pow(static_cast<double>(got[i]) - want[i], 2);
    squares += std::pow(static_cast<double>(want[i]), 2);
  }
  // Activations beside quantised weights are rounded to 8 bits, and keys, values and weights of
  // attention to 16.
  EXPECT_LT(std::sqrt(errors / squares), is_quantised() ? 0.05 : 0.005);
}

TEST_P(CudaForwardTest, ChunkBatchAndCutDoNotChangeABit) {
  const Model one(*file_, emulated(kFew), GetParam().kv);
  const Model many(*file_, emulated(kMany), GetParam().kv);
  const auto tokens = some_tokens(one.runner->info().vocab_size);
  const auto whole = Sequences(*one.runner, 1, kTokens).logits(0, tokens, kTokens);
  Sequences sequences(*many.runner, 3, kTokens);
  EXPECT_TRUE(same_bits(whole, sequences.logits(0, tokens, kTokens)));
  EXPECT_TRUE(same_bits(whole, sequences.logits(1, tokens, 7)));
  // The last token alone, as in decode, beside another sequence's prompt in the same step.
  const std::span all(tokens);
  const SamplingParams greedy{.temperature = 0.0F, .num_logprobs = 3};
  sequences.logits(2, all.first(kTokens - 1), 33);
  StepPlan plan{
      {sequences.slice(0, all.first(40), 0), sequences.slice(2, all.last(1), kTokens - 1)}};
  plan.slices[1].sample = true;
  plan.slices[1].sampling = &greedy;
  StepPlan alone{{sequences.slice(1, all.last(1), kTokens - 1)}};
  alone.slices[0].sample = true;
  alone.slices[0].sampling = &greedy;
  const StepResult beside = many.runner->run(plan, sequences.arena(), {});
  const StepResult by_itself = many.runner->run(alone, sequences.arena(), {});
  ASSERT_TRUE(beside.sampled[1] && by_itself.sampled[0]);
  EXPECT_EQ(beside.sampled[1]->token, by_itself.sampled[0]->token);
  EXPECT_EQ(beside.sampled[1]->logprob, by_itself.sampled[0]->logprob);
}

// A layer's blocks are in the arena when it is said to be done, the partly filled one included.
TEST_P(CudaForwardTest, ALayerIsDoneWhenItsBlocksAreInTheArena) {
  const Model cuda(*file_, emulated(), GetParam().kv);
  const auto tokens = some_tokens(cuda.runner->info().vocab_size);
  Sequences sequences(*cuda.runner, 1, kTokens);
  const KvArenaView& arena = sequences.arena();
  std::vector<std::vector<std::byte>> layers;
  cuda.runner->run({{sequences.slice(0, tokens, 0)}}, arena, [&](std::uint32_t layer) {
    EXPECT_EQ(layer, layers.size());
    const std::byte* const begin = arena.base + layer * arena.layer_stride();
    layers.emplace_back(begin, begin + arena.layer_stride());
  });
  ASSERT_EQ(layers.size(), arena.layout.layers);
  for (std::uint32_t layer = 0; layer < layers.size(); ++layer) {
    const std::byte* const begin = arena.base + layer * arena.layer_stride();
    EXPECT_EQ(layers[layer], std::vector<std::byte>(begin, begin + arena.layer_stride())) << layer;
  }
  // Another node's device, into whose arena they were moved, goes on from them.
  const Model other(*file_, emulated(kFew), GetParam().kv);
  Sequences moved(*other.runner, 1, kTokens + 1);
  Sequences stayed(*cuda.runner, 1, kTokens + 1);
  cuda.runner->run({{stayed.slice(0, tokens, 0)}}, stayed.arena(), [](std::uint32_t) {});
  std::memcpy(moved.arena().base, stayed.arena().base, stayed.arena().bytes());
  const SamplingParams greedy{.temperature = 0.0F, .num_logprobs = 1};
  const std::vector<TokenId> next{5};
  const auto step = [&](const Model& model, const Sequences& of, bool arrived) {
    StepPlan plan{{of.slice(0, next, kTokens)}};
    plan.slices[0].arrived = arrived;
    plan.slices[0].sample = true;
    plan.slices[0].sampling = &greedy;
    return model.runner->run(plan, of.arena(), {}).sampled[0]->logprob;
  };
  EXPECT_EQ(step(other, moved, true), step(cuda, stayed, false));
}

// A decode node's blocks are fetched by others once they are full.
TEST_P(CudaForwardTest, FullBlocksAreInTheArenaWhenAStepEnds) {
  const Model cuda(*file_, emulated(), GetParam().kv);
  const auto tokens = some_tokens(cuda.runner->info().vocab_size);
  Sequences asked(*cuda.runner, 1, kTokens);
  Sequences silent(*cuda.runner, 1, kTokens);
  cuda.runner->run({{asked.slice(0, tokens, 0)}}, asked.arena(), [](std::uint32_t) {});
  cuda.runner->run({{silent.slice(0, tokens, 0)}}, silent.arena(), {});
  const KvArenaView& want = asked.arena();
  const KvArenaView& got = silent.arena();
  const auto blocks = asked.slice(0, tokens, 0).blocks;
  for (std::size_t i = 0; i < kTokens / want.layout.block_tokens; ++i) {
    for (std::uint32_t layer = 0; layer < want.layout.layers; ++layer) {
      EXPECT_EQ(
          std::memcmp(
              want.block(layer, blocks[i]), got.block(layer, blocks[i]), want.layout.block_bytes()),
          0)
          << i << " " << layer;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.architecture + "_" + std::string(kernels::info(info.param.dtype).name) + "_" +
         std::string(to_string(info.param.kv));
}

const auto kModels = ::testing::Values(Case{"llama", DType::F32, KvDType::F32},
                                       Case{"llama", DType::Q4_K, KvDType::I16},
                                       Case{"gemma3", DType::Q4_1, KvDType::F16},
                                       Case{"gemma2", DType::Q5_0, KvDType::I16},
                                       Case{"qwen3moe", DType::Q4_1, KvDType::I8},
                                       Case{"qwen2", DType::Q8_0, KvDType::F8});
INSTANTIATE_TEST_SUITE_P(Models, CudaForwardTest, kModels, name_of);
INSTANTIATE_TEST_SUITE_P(Models, CudaAgreementTest, kModels, name_of);
INSTANTIATE_TEST_SUITE_P(Chosen,
                         CudaAgreementTest,
                         ::testing::Values(Case{"qwen3moe", DType::F32, KvDType::F32}),
                         name_of);

// A request without log-probabilities is sampled on the device, one with them on the host.
class CudaSampledTest : public ::testing::Test {
 protected:
  static std::unique_ptr<const ModelFile> small() {
    return open_tiny(baton::testing::tiny_model_for("llama", DType::Q8_0));
  }
  static std::vector<SamplingParams> requests() {
    SamplingParams edited{.temperature = 1.2F, .top_k = 30, .seed = 77};
    edited.repetition_penalty = 1.3F;
    edited.presence_penalty = 0.4F;
    edited.frequency_penalty = 0.2F;
    edited.logit_bias = {{7, 3.0F}, {9, -4.0F}};
    return {SamplingParams{.temperature = 0.0F},
            SamplingParams{.temperature = 0.9F, .seed = 4},
            SamplingParams{.temperature = 1.5F, .top_p = 0.8F, .min_p = 0.02F, .seed = 5},
            edited};
  }
  static SamplingParams on_host(SamplingParams params) {
    params.num_logprobs = 1;
    return params;
  }

  const std::unique_ptr<const ModelFile> file_ = small();
  const Model model_{*file_, emulated()};
  const std::vector<TokenId> tokens_ = some_tokens(model_.runner->info().vocab_size);
};

TEST_F(CudaSampledTest, AnswersAreThoseOfTheHostsSampler) {
  for (const SamplingParams& params : requests()) {
    const auto answer = [&](const SamplingParams& by) {
      return Sequences(*model_.runner, 1, 2 * kTokens).generate(0, tokens_, 8, 64, by);
    };
    const std::vector<TokenId> want = answer(on_host(params));
    EXPECT_EQ(answer(params), want) << params.temperature;
  }
}

// Two of each kind in one step, and a prompt that is scored.
TEST_F(CudaSampledTest, RequestsOfBothKindsShareAStep) {
  const std::vector<SamplingParams> params = requests();
  const std::vector<SamplingParams> by{
      params[1], on_host(params[2]), on_host(params[3]), params[3], params[2]};
  Sequences sequences(*model_.runner, by.size(), kTokens);
  const std::span<const TokenId> prompt = std::span(tokens_).first(9);
  StepPlan plan;
  for (std::size_t i = 0; i < by.size(); ++i) {
    plan.slices.push_back(sequences.slice(i, prompt, 0));
    plan.slices[i].sample = true;
    plan.slices[i].sampling = &by[i];
    plan.slices[i].prompt = prompt;
    plan.slices[i].barred = std::span(tokens_).subspan(i, 2);
  }
  plan.slices[4].targets = std::span(tokens_).subspan(1, 8);
  plan.slices[4].target_alternatives = 1;
  const StepResult got = model_.runner->run(plan, sequences.arena(), {});
  ASSERT_EQ(got.scored[4].size(), 8U);
  for (std::size_t i = 0; i < by.size(); ++i) {
    const SamplingParams host = on_host(by[i]);
    StepPlan alone{{plan.slices[i]}};
    alone.slices[0].sampling = &host;
    const StepResult want = model_.runner->run(alone, sequences.arena(), {});
    ASSERT_TRUE(got.sampled[i] && want.sampled[0]);
    EXPECT_EQ(got.sampled[i]->token, want.sampled[0]->token) << i;
    EXPECT_EQ(got.sampled[i]->top.empty(), by[i].num_logprobs < 0) << i;
    if (i == 4) {
      EXPECT_EQ(got.scored[4].back().logprob, want.scored[0].back().logprob);
    }
  }
}

// What is sampled behind right drafts is kept, what is behind a wrong one is not.
TEST_F(CudaSampledTest, DraftsAreFollowedAsOnTheHost) {
  const SamplingParams params = requests()[3];
  const std::vector<TokenId> answer =
      Sequences(*model_.runner, 1, 2 * kTokens).generate(0, tokens_, 4, 64, on_host(params));
  const std::vector<TokenId> drafts{answer[0], answer[1] + 1, answer[2]};
  const SamplingParams host = on_host(params);
  for (const SamplingParams* by : {&params, &host}) {
    const Sequences sequences(*model_.runner, 1, 2 * kTokens);
    StepPlan plan{{sequences.slice(0, tokens_, 0)}};
    plan.slices[0].sample = true;
    plan.slices[0].sampling = by;
    plan.slices[0].prompt = tokens_;
    plan.slices[0].drafts = drafts;
    const StepResult got = model_.runner->run(plan, sequences.arena(), {});
    ASSERT_TRUE(got.sampled[0]);
    EXPECT_EQ(got.sampled[0]->token, answer[0]);
    ASSERT_EQ(got.followed[0].size(), 1U);
    EXPECT_EQ(got.followed[0][0].token, answer[1]);
  }
}

TEST(CudaBackend, TooLittleMemoryIsAnError) {
  auto options = baton::testing::tiny_model_for("llama", DType::F32);
  const auto file = open_tiny(options);
  auto backend = kernels::cuda::make_backend(baton::testing::make_emulated_device(1, 4096), 1);
  ASSERT_TRUE(backend);
  const auto made = make_runner(*file, **backend, {.max_step_tokens = 16});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::OutOfMemory);
}

}  // namespace
}  // namespace baton::engine
