// Decode steps that the cuda backend records and repeats, over the emulated device: the tokens are
// those of steps that run as they are, while batches grow and shrink, contexts grow past ranges and
// blocks, sequences share steps with prompts, and buffers and arenas change. That device compares
// each step that it repeats with what the step would launch now.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/step.h"
#include "tests/support/emulated_device.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

using baton::testing::EmulatedCounts;
using baton::testing::EmulatedOptions;
using kernels::DType;
using testing::open_tiny;
using testing::Sequences;

struct Model {
  Model(const ModelFile& file, bool record_steps, KvDType dtype = KvDType::I16, bool can = true) {
    const EmulatedOptions options{.can_record = can, .counts = &counts};
    auto made = kernels::cuda::make_backend(
        baton::testing::make_emulated_device(options), 1, nullptr, record_steps);
    EXPECT_TRUE(made) << made.error().message;
    backend = std::move(*made);
    auto ready = make_runner(file, *backend, {.max_step_tokens = 256, .kv_dtype = dtype});
    EXPECT_TRUE(ready) << ready.error().message;
    runner = std::move(*ready);
  }

  EmulatedCounts counts;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<ModelRunner> runner;
};

std::vector<SamplingParams> sampled_differently() {
  SamplingParams edited{.temperature = 1.2F, .top_k = 30, .seed = 77};
  edited.repetition_penalty = 1.3F;
  edited.frequency_penalty = 0.2F;
  edited.logit_bias = {{7, 3.0F}};
  SamplingParams on_host{.temperature = 0.9F, .seed = 9};
  on_host.num_logprobs = 1;
  return {SamplingParams{.temperature = 0.0F},
          SamplingParams{.temperature = 1.5F, .top_p = 0.8F, .min_p = 0.02F, .seed = 5},
          edited,
          on_host};
}

// A request: when its prompt is computed, how long it is and how many tokens follow.
struct Request {
  std::size_t begins;
  std::size_t prompt;
  std::size_t tokens;
};

// Steps as a decode node makes them: a token of every sequence that runs, or, where prompts begin,
// those as well.
class Serving {
 public:
  Serving(ModelRunner& runner, std::vector<Request> requests)
      : runner_(runner),
        requests_(std::move(requests)),
        sequences_(runner, requests_.size(), 320),
        outputs_(requests_.size()) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      for (std::size_t at = 0; at < requests_[i].prompt; ++at) {
        prompts_.resize(requests_.size());
        prompts_[i].push_back(
            static_cast<TokenId>((at * 7919U + i * 31U + 13U) % runner.info().vocab_size));
      }
    }
  }

  // False when all have ended.
  bool step() {
    StepPlan plan;
    std::vector<std::size_t> who;
    std::vector<TokenId> last(requests_.size());
    bool waiting = false;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const bool is_prompt = outputs_[i].empty();
      waiting = waiting || (is_prompt && steps_ < requests_[i].begins);
      if (steps_ < requests_[i].begins || outputs_[i].size() == requests_[i].tokens) {
        continue;
      }
      last[i] = is_prompt ? TokenId{} : outputs_[i].back();
      SequenceSlice slice =
          is_prompt
              ? sequences_.slice(i, prompts_[i], 0)
              : sequences_.slice(i, {&last[i], 1}, prompts_[i].size() + outputs_[i].size() - 1);
      slice.sample = true;
      slice.sampling = &sampling_[i % sampling_.size()];
      slice.prompt = prompts_[i];
      slice.output = outputs_[i];
      plan.slices.push_back(slice);
      who.push_back(i);
    }
    ++steps_;
    if (plan.slices.empty()) {
      return waiting;
    }
    const StepResult result = runner_.run(plan, sequences_.arena(), {});
    for (std::size_t i = 0; i < who.size(); ++i) {
      outputs_[who[i]].push_back(result.sampled[i]->token);
    }
    return true;
  }
  void finish() {
    while (step()) {
    }
  }

  void start_again() {
    steps_ = 0;
    outputs_.assign(requests_.size(), {});
  }

  const std::vector<std::vector<TokenId>>& outputs() const { return outputs_; }
  std::vector<std::byte> arena() const {
    const KvArenaView& view = sequences_.arena();
    return {view.base, view.base + view.bytes()};
  }

 private:
  ModelRunner& runner_;
  const std::vector<Request> requests_;
  const std::vector<SamplingParams> sampling_ = sampled_differently();
  Sequences sequences_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<std::vector<TokenId>> outputs_;
  std::size_t steps_ = 0;
};

// Up to nine at a time: buckets of 1 to 16 rows. The first passes 256 positions, some fill a block.
const std::vector<Request> kRequests{{0, 250, 14},
                                     {0, 3, 3},
                                     {2, 30, 9},
                                     {4, 5, 6},
                                     {4, 31, 5},
                                     {4, 2, 4},
                                     {5, 7, 4},
                                     {5, 9, 4},
                                     {6, 4, 4}};

struct Case {
  std::string architecture;
  DType dtype;
  KvDType kv;
};

class CudaStepsTest : public ::testing::TestWithParam<Case> {
 protected:
  const std::unique_ptr<const ModelFile> file_ =
      open_tiny(baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype));
};

TEST_P(CudaStepsTest, TokensAreThoseOfStepsThatRunAsTheyAre) {
  Model plain(*file_, false, GetParam().kv);
  Serving want(*plain.runner, kRequests);
  want.finish();
  EXPECT_EQ(plain.backend->step_counts().steps, 0U);
  Model recorded(*file_, true, GetParam().kv);
  Serving got(*recorded.runner, kRequests);
  got.finish();
  EXPECT_EQ(got.outputs(), want.outputs());
  EXPECT_EQ(got.arena(), want.arena());
  // Once more, by what was recorded.
  got.start_again();
  got.finish();
  EXPECT_EQ(got.outputs(), want.outputs());
  const kernels::StepCounts counts = recorded.backend->step_counts();
  EXPECT_GT(counts.repeated, counts.steps / 2);
  EXPECT_EQ(counts.repeated, recorded.counts.replays);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         CudaStepsTest,
                         ::testing::Values(Case{"llama", DType::Q8_0, KvDType::I16},
                                           Case{"gemma3", DType::Q4_1, KvDType::F16}),
                         [](const auto& info) {
                           return info.param.architecture + "_" +
                                  std::string(kernels::info(info.param.dtype).name);
                         });

class CudaRecordedTest : public ::testing::Test {
 protected:
  static std::unique_ptr<const ModelFile> small(const std::string& architecture = "llama") {
    return open_tiny(baton::testing::tiny_model_for(architecture, DType::Q8_0));
  }
  // Of two short requests, alone.
  std::vector<std::vector<TokenId>> wanted(const std::vector<Request>& requests) const {
    Model plain(*file_, false);
    Serving serving(*plain.runner, requests);
    serving.finish();
    return serving.outputs();
  }

  const std::unique_ptr<const ModelFile> file_ = small();
  const std::vector<Request> two_{{0, 5, 8}, {0, 3, 8}};
};

// The first step of a shape runs as it is, the second is recorded, the rest repeat it.
TEST_F(CudaRecordedTest, AShapeIsRecordedWhenItComesAgain) {
  Model model(*file_, true);
  Serving serving(*model.runner, two_);
  serving.step();  // the prompts
  EXPECT_EQ(model.backend->step_counts().steps, 0U);
  serving.step();
  EXPECT_EQ(model.counts.recordings, 0U);
  serving.step();
  EXPECT_EQ(model.counts.recordings, 1U);
  EXPECT_EQ(model.counts.replays, 1U);
  serving.finish();
  EXPECT_EQ(model.counts.recordings, 1U);
  EXPECT_EQ(model.counts.replays, 6U);
  EXPECT_EQ(serving.outputs(), wanted(two_));
}

// One for what the forward pass takes from the host, one for what sampling does: however many
// layers there are, and whether a step is recorded, repeated or neither.
TEST_F(CudaRecordedTest, AStepIsCopiedInAtOnce) {
  auto options = baton::testing::tiny_model_for("gemma3", DType::Q8_0);
  options.layers = 7;  // of both windows
  const auto file = open_tiny(options);
  Model model(*file, true);
  Serving serving(*model.runner, {{0, 60, 5}, {0, 40, 5}});
  for (int i = 0; i < 5; ++i) {
    const std::size_t before = model.counts.copies_in;
    serving.step();
    EXPECT_EQ(model.counts.copies_in - before, 2U) << i;
  }
}

TEST_F(CudaRecordedTest, TwoArenasTakeTurns) {
  Model model(*file_, true);
  Serving one(*model.runner, two_);
  Serving other(*model.runner, two_);
  bool goes_on = true;
  while (goes_on) {
    goes_on = one.step();
    goes_on = other.step() || goes_on;
  }
  EXPECT_EQ(one.outputs(), wanted(two_));
  EXPECT_EQ(other.outputs(), one.outputs());
  EXPECT_EQ(model.counts.recordings, 2U);
}

// A long prompt makes buffers grow, whose memory the recorded launches used.
TEST_F(CudaRecordedTest, WhatIsRecordedGoesWithItsBuffers) {
  const std::vector<Request> requests{{0, 5, 12}, {0, 3, 12}, {6, 200, 1}};
  Model model(*file_, true);
  Serving serving(*model.runner, requests);
  for (int i = 0; i < 6; ++i) {
    serving.step();
  }
  const std::uint64_t before = model.backend->step_counts().recordings;
  EXPECT_EQ(before, 1U);
  serving.finish();
  EXPECT_EQ(serving.outputs(), wanted(requests));
  EXPECT_EQ(model.backend->step_counts().recordings, 2U);
  EXPECT_EQ(model.counts.recordings, 1U);
}

TEST_F(CudaRecordedTest, StepsOfAnotherModelOnTheDeviceAreItsOwn) {
  const auto other_file = open_tiny(baton::testing::tiny_model_for("llama", DType::Q4_1));
  Model model(*file_, true);
  Serving one(*model.runner, two_);
  for (int i = 0; i < 4; ++i) {
    one.step();
  }
  {
    auto drafting = make_runner(*other_file, *model.backend, {.max_step_tokens = 64});
    ASSERT_TRUE(drafting);
    Serving drafts(**drafting, two_);
    drafts.finish();
    EXPECT_NE(drafts.outputs(), wanted(two_));
    EXPECT_EQ(model.counts.recordings, 2U);
  }
  one.finish();
  EXPECT_EQ(one.outputs(), wanted(two_));
}

// Drafts: several rows of a sequence, all of them sampled.
TEST_F(CudaRecordedTest, StepsWithDraftsAreRepeated) {
  Model model(*file_, true);
  Model plain(*file_, false);
  const SamplingParams greedy{.temperature = 0.0F};
  const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<std::vector<TokenId>> answers;
  for (Model* by : {&plain, &model}) {
    const Sequences sequences(*by->runner, 2, 128);
    std::vector<TokenId>& answer = answers.emplace_back();
    for (std::size_t i = 0; i < 2; ++i) {
      by->runner->run({{sequences.slice(i, prompt, 0)}}, sequences.arena(), {});
    }
    for (std::size_t step = 0; step < 4; ++step) {
      const std::vector<TokenId> token{static_cast<TokenId>(11 + step)};
      const std::vector<TokenId> drafts{21, 22, static_cast<TokenId>(23 + step)};
      StepPlan plan{{sequences.slice(0, token, prompt.size() + step),
                     sequences.slice(1, token, prompt.size() + step)}};
      for (SequenceSlice& slice : plan.slices) {
        slice.sample = true;
        slice.sampling = &greedy;
        slice.prompt = prompt;
      }
      plan.slices[0].drafts = drafts;
      const StepResult result = by->runner->run(plan, sequences.arena(), {});
      answer.push_back(result.sampled[0]->token);
      answer.push_back(result.sampled[1]->token);
    }
  }
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(model.counts.replays, 3U);
}

// Where a layer's end is told, experts are chosen by the host, or rows are left out.
TEST_F(CudaRecordedTest, OtherStepsAreNotRecorded) {
  Model model(*file_, true);
  const Sequences sequences(*model.runner, 1, 64);
  const std::vector<TokenId> tokens{1, 2, 3};
  const SamplingParams greedy{.temperature = 0.0F};
  StepPlan plan{{sequences.slice(0, tokens, 0)}};
  model.runner->run(plan, sequences.arena(), {});  // none of its rows is wanted
  plan.slices[0].sample = true;
  plan.slices[0].sampling = &greedy;
  model.runner->run(plan, sequences.arena(), {});  // one of them
  plan.slices[0].tokens = std::span(tokens).first(1);
  model.runner->run(plan, sequences.arena(), [](std::uint32_t) {});
  EXPECT_EQ(model.backend->step_counts().steps, 0U);
  const auto file = small("qwen3moe");
  Model experts(*file, true);
  Serving serving(*experts.runner, {{0, 2, 3}});
  serving.finish();
  EXPECT_EQ(experts.backend->step_counts().steps, 0U);
}

TEST_F(CudaRecordedTest, ADeviceThatCannotKeepThemIsNotAskedAgain) {
  Model model(*file_, true, KvDType::I16, false);
  Serving serving(*model.runner, two_);
  serving.finish();
  EXPECT_EQ(serving.outputs(), wanted(two_));
  EXPECT_EQ(model.backend->step_counts().repeated, 0U);
  EXPECT_EQ(model.backend->step_counts().steps, 2U);
}

TEST_F(CudaRecordedTest, ATokenThatTheVocabularyLacksEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    Model model(*file_, true);
    const Sequences sequences(*model.runner, 1, 64);
    const SamplingParams greedy{.temperature = 0.0F};
    for (const TokenId id : {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{1 << 30}}) {
      StepPlan plan{{sequences.slice(0, {&id, 1}, 0)}};
      plan.slices[0].sample = true;
      plan.slices[0].sampling = &greedy;
      model.runner->run(plan, sequences.arena(), {});
    }
  };
  EXPECT_DEATH(run(), "token id out of range");
}

}  // namespace
}  // namespace baton::engine
