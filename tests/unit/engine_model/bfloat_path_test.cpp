// Models of BF16 weights on the avx512_bf16 path, over a model of the instruction and on the real
// one where it is: a row's bits do not depend on chunking, threads, or which of the two computes;
// nor are packed weights of the other path taken for its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/emulated_kernels.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using testing::Sequences;

constexpr std::size_t kPrompt = 70;  // several KV blocks

class BfloatPathTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const unsigned threads : {1U, 2U}) {
      kernels::CpuOptions options;
      options.threads = threads;
      options.float_path = kernels::FloatPath::Avx512Bf16;
      if (const auto* table = kernels::testing::emulated_avx512_bf16_kernels(); table != nullptr) {
        backends_.push_back(*kernels::cpu::make_backend(*table, options));
      }
      if (auto real = kernels::make_cpu_backend(options)) {
        backends_.push_back(std::move(*real));
      }
    }
    if (backends_.empty()) {
      GTEST_SKIP() << "this machine has neither AVX512-BF16 nor the AVX2 to emulate it";
    }
    file_ = testing::open_tiny({.architecture = GetParam(),
                                .dtype = DType::BF16,
                                .embedding_dtype = DType::BF16,
                                .ffn = 90});  // not whole panels
    std::uint64_t seed = 7;
    for (std::size_t i = 0; i < kPrompt; ++i) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      prompt_.push_back(static_cast<TokenId>((seed >> 33U) % 256));
    }
  }

  std::unique_ptr<ModelRunner> runner(kernels::Backend& backend, const std::string& folder = {}) {
    auto made =
        make_runner(*file_, backend, {.max_step_tokens = 128, .packed_cache = {.folder = folder}});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  std::vector<std::unique_ptr<kernels::Backend>> backends_;
  std::unique_ptr<const ModelFile> file_;
  std::vector<TokenId> prompt_;
};

TEST_P(BfloatPathTest, ChunksAndThreadsChangeNeitherBitsNorTokens) {
  const SamplingParams greedy{.temperature = 0};
  std::vector<float> logits;
  std::vector<TokenId> tokens;
  std::uint64_t hash = 0;
  for (const auto& backend : backends_) {
    const auto model = runner(*backend);
    Sequences sequences(*model, 2, kPrompt + 8);
    for (const std::size_t chunk : {128, 13, 1}) {
      const std::vector<float> now = sequences.logits(0, prompt_, chunk);
      const std::vector<TokenId> output = sequences.generate(1, prompt_, 8, chunk, greedy);
      if (logits.empty()) {
        logits = now;
        tokens = output;
        hash = model->info().numerics_hash;
        for (const float value : logits) {
          ASSERT_TRUE(std::isfinite(value));
        }
      }
      EXPECT_EQ(now, logits) << backend->description() << " in chunks of " << chunk;
      EXPECT_EQ(output, tokens) << backend->description() << " in chunks of " << chunk;
    }
    EXPECT_EQ(model->info().numerics_hash, hash) << backend->description();
  }
  // Nodes of the exact path are refused.
  const auto exact = testing::make_backend("cpu1");
  const auto model = runner(*exact);
  EXPECT_NE(model->info().numerics_hash, hash);
  Sequences sequences(*model, 1, kPrompt);
  EXPECT_NE(sequences.logits(0, prompt_, 128), logits);
}

TEST_P(BfloatPathTest, PackedWeightsOfTheExactPathAreLeftAlone) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("bfloat_path." + std::to_string(::getpid()));
  fs::remove_all(folder);
  const auto logits = [&](kernels::Backend& backend, const std::string& cache) {
    const auto model = runner(backend, cache);
    Sequences sequences(*model, 1, kPrompt);
    return sequences.logits(0, prompt_, 128);
  };
  const auto exact = testing::make_backend("cpu1");
  const std::vector<float> plain = logits(*exact, "");
  const std::vector<float> rounded = logits(*backends_.back(), "");
  for (int start = 0; start < 2; ++start) {  // writes, then maps
    EXPECT_EQ(logits(*exact, folder.string()), plain);
    EXPECT_EQ(logits(*backends_.back(), folder.string()), rounded);
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         BfloatPathTest,
                         ::testing::Values("llama", "gemma3", "qwen3moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::engine
