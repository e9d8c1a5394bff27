// A sequence cut anywhere and begun anew with its tokens as output goes on bit for bit, on real
// forward passes: penalties, minimum length, random draws and log-probabilities included.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/kv/kv_memory.h"
#include "engine/model/model.h"
#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"

namespace baton::engine {
namespace {

constexpr std::uint32_t kOutput = 60;

class Resume : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = ::testing::TempDir() + "resume_test." + std::to_string(::getpid());
    baton::testing::TinyModelOptions options;
    options.architecture = GetParam();
    baton::testing::write_tiny_model(path, options);
    auto file = ModelFile::open(path);
    std::filesystem::remove(path);  // the mapping stays
    ASSERT_TRUE(file) << file.error().message;
    file_ = std::move(*file);
    backend_ = testing::make_backend("cpu1");
    auto runner = make_runner(*file_, *backend_, {.max_step_tokens = 256});
    ASSERT_TRUE(runner) << runner.error().message;
    runner_ = std::move(*runner);
  }

  GenerateRequest request() const {
    GenerateRequest request;
    request.prompt = {5, 9, 17, 33, 65, 129, 9, 5};
    request.sampling.temperature = 0.9F;
    request.sampling.top_p = 0.95F;
    request.sampling.repetition_penalty = 1.2F;
    request.sampling.presence_penalty = 0.4F;
    request.sampling.frequency_penalty = 0.3F;
    request.sampling.seed = 42;
    request.sampling.num_logprobs = 2;
    request.max_tokens = kOutput;
    request.min_tokens = kOutput;  // the stop tokens below stay barred, also over a cut
    for (TokenId token = 0; token < 100; ++token) {
      request.stop_tokens.push_back(token);
    }
    return request;
  }

  // What is sampled until the end, prompt and output computed in chunks.
  std::vector<SampledToken> run(const GenerateRequest& request, std::uint32_t chunk) {
    const ModelInfo& info = runner_->info();
    const auto size = check_size(request, info.context_length, info.vocab_size);
    EXPECT_TRUE(size) << size.error().message;
    const std::uint32_t blocks = info.layout.blocks_for(size->max_stored + 1);
    auto memory = KvMemory::create(info.layout, {.num_blocks = blocks, .prefix_cache = false});
    EXPECT_TRUE(memory) << memory.error().message;
    Sequence sequence(request, *size, BlockTable({}, *(*memory)->acquire(blocks)), 0);
    std::vector<SampledToken> sampled;
    FinishReason finish = FinishReason::None;
    while (finish == FinishReason::None) {
      const PlannedSlice planned{&sequence, std::min(chunk, sequence.num_pending())};
      const auto result = runner_->run(to_step_plan({&planned, 1}), (*memory)->arena(), nullptr);
      finish = sequence.advance(planned.count, result.sampled[0] ? &*result.sampled[0] : nullptr);
      if (result.sampled[0]) {
        sampled.push_back(*result.sampled[0]);
      }
    }
    return sampled;
  }

  std::unique_ptr<const ModelFile> file_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<ModelRunner> runner_;
};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

TEST_P(Resume, AtAnyTokenGoesOnBitForBit) {
  const GenerateRequest whole = request();
  const std::vector<SampledToken> expected = run(whole, 256);
  ASSERT_EQ(expected.size(), kOutput);
  for (const std::uint32_t cut : {1U, 2U, 7U, 23U, 24U, 25U, 40U, 59U}) {
    for (const std::uint32_t chunk : {5U, 256U}) {
      GenerateRequest resumed = whole;
      for (std::uint32_t i = 0; i < cut; ++i) {
        resumed.output.push_back(expected[i].token);
      }
      const std::vector<SampledToken> rest = run(resumed, chunk);
      ASSERT_EQ(rest.size(), kOutput - cut);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        const SampledToken& want = expected[cut + i];
        ASSERT_EQ(rest[i].token, want.token) << "cut " << cut << ", token " << cut + i;
        EXPECT_TRUE(same_bits(rest[i].logprob, want.logprob));
        ASSERT_EQ(rest[i].top.size(), want.top.size());
        for (std::size_t k = 0; k < want.top.size(); ++k) {
          EXPECT_EQ(rest[i].top[k].token, want.top[k].token);
          EXPECT_TRUE(same_bits(rest[i].top[k].logprob, want.top[k].logprob));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Resume, ::testing::Values("llama", "gemma3"));

}  // namespace
}  // namespace baton::engine
