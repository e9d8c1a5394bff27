// A sequence cut anywhere and begun anew with its tokens as output goes on bit for bit, on real
// forward passes: penalties, minimum length, random draws and log-probabilities included.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

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

  // Guesses of what follows an output of so many tokens.
  using Guess = std::function<std::vector<TokenId>(std::uint32_t num_output)>;

  // What is sampled until the end, prompt and output computed in chunks.
  std::vector<SampledToken> run(const GenerateRequest& request,
                                std::uint32_t chunk,
                                const Guess& guess = nullptr) {
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
      PlannedSlice planned{&sequence, std::min(chunk, sequence.num_pending()), {}};
      std::vector<TokenId> drafts;
      if (guess != nullptr && sequence.max_drafts() > 0) {
        drafts = guess(sequence.num_output());
        drafts.resize(std::min<std::size_t>(drafts.size(), sequence.max_drafts()));
        planned.drafts = drafts;
      }
      const auto result = runner_->run(to_step_plan({&planned, 1}), (*memory)->arena(), nullptr);
      std::vector<SampledToken> step = result.followed[0];
      if (result.sampled[0]) {
        step.insert(step.begin(), *result.sampled[0]);
      }
      const auto [end, taken] = sequence.advance_all(planned.count, step);
      finish = end;
      sampled.insert(sampled.end(), step.begin(), step.begin() + taken);
      num_drafted_ += drafts.size();
      num_accepted_ += taken > 0 ? taken - 1 : 0;
    }
    return sampled;
  }

  std::unique_ptr<const ModelFile> file_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<ModelRunner> runner_;
  std::size_t num_drafted_ = 0;
  std::size_t num_accepted_ = 0;
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

void expect_same(const std::vector<SampledToken>& got, const std::vector<SampledToken>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].token, want[i].token) << "token " << i;
    EXPECT_TRUE(same_bits(got[i].logprob, want[i].logprob)) << "token " << i;
    ASSERT_EQ(got[i].top.size(), want[i].top.size());
    for (std::size_t k = 0; k < want[i].top.size(); ++k) {
      EXPECT_EQ(got[i].top[k].token, want[i].top[k].token);
      EXPECT_TRUE(same_bits(got[i].top[k].logprob, want[i].top[k].logprob));
    }
  }
}

// Guesses that are right, wrong from the first token, and wrong somewhere in between.
TEST_P(Resume, DraftsChangeNoBit) {
  for (const bool penalties : {false, true}) {
    for (const std::uint32_t min_tokens : {0U, 17U}) {
      GenerateRequest whole = request();
      whole.min_tokens = min_tokens;
      whole.stop_tokens = {};
      if (!penalties) {
        whole.sampling = {.temperature = 0.0F, .num_logprobs = 1};
      }
      std::vector<SampledToken> expected = run(whole, 256);
      ASSERT_EQ(expected.size(), kOutput);
      // Ends by a stop token among the drafts, which is barred at first.
      for (std::size_t end = 30; end < expected.size() && whole.stop_tokens.empty(); ++end) {
        const auto first = std::ranges::find(expected, expected[end].token, &SampledToken::token);
        if (first == expected.begin() + static_cast<std::ptrdiff_t>(end)) {
          whole.stop_tokens = {expected[end].token};
        }
      }
      expected = run(whole, 256);
      for (const std::uint32_t length : {1U, 3U, 8U}) {
        num_drafted_ = 0;
        num_accepted_ = 0;
        const auto got = run(whole, 5, [&](std::uint32_t num_output) {
          std::vector<TokenId> drafts;
          for (std::uint32_t i = num_output; i < num_output + length; ++i) {
            const bool is_wrong = i % 7 == 3 || num_output % 5 == 2;
            const TokenId right = i < expected.size() ? expected[i].token : 0;
            drafts.push_back(is_wrong ? (right + 1) % 100 : right);
          }
          return drafts;
        });
        expect_same(got, expected);
        EXPECT_GT(num_accepted_, 3U);
        EXPECT_LT(num_accepted_, num_drafted_);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Resume,
                         ::testing::Values("llama", "gemma3", "gemma2", "qwen3moe"));

}  // namespace
}  // namespace baton::engine
