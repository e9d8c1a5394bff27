// Tensor parallel on the cuda backend over emulated devices and a library that stands for NCCL:
// one, two and four ranks give the same bits, and blocks go between nodes with different numbers.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/nccl_ranks.h"
#include "tests/support/emulated_device.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

using kernels::DType;
using testing::Sequences;

constexpr std::size_t kTokens = 40;  // a full block and a part of one, past the tiny window
constexpr std::uint32_t kPieces = 4;

kernels::Backends emulated_ranks(std::uint32_t count) {
  std::vector<std::unique_ptr<kernels::cuda::NcclRank>> joined(1);
  if (count > 1) {
    std::vector<int> devices(count);
    std::iota(devices.begin(), devices.end(), 0);
    const auto api = kernels::cuda::NcclApi::open(FAKE_NCCL);
    EXPECT_TRUE(api) << api.error().message;
    auto ranks = kernels::cuda::join_ranks(*api, devices);
    EXPECT_TRUE(ranks) << ranks.error().message;
    joined = std::move(*ranks);
  }
  kernels::Backends out;
  for (auto& rank : joined) {
    auto backend =
        kernels::cuda::make_backend(baton::testing::make_emulated_device(132), 1, std::move(rank));
    EXPECT_TRUE(backend) << backend.error().message;
    out.push_back(std::move(*backend));
  }
  return out;
}

struct Ranks {
  Ranks(const ModelFile& file, std::uint32_t count, KvDType dtype)
      : backends(emulated_ranks(count)) {
    std::vector<kernels::Backend*> borrowed;
    for (const auto& backend : backends) {
      borrowed.push_back(backend.get());
    }
    auto made = make_runner(
        file, borrowed, {.max_step_tokens = 64, .kv_dtype = dtype, .partial_sums = kPieces});
    EXPECT_TRUE(made) << made.error().message;
    runner = std::move(*made);
  }
  kernels::Backends backends;
  std::unique_ptr<ModelRunner> runner;
};

struct Case {
  std::string architecture;
  DType dtype;
  KvDType kv;
};

class CudaRankTest : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<TokenId> some_tokens() const {
    std::vector<TokenId> out;
    for (std::uint32_t i = 0; i < kTokens; ++i) {
      out.push_back(static_cast<TokenId>((i * 7919U + 13U) % one_.runner->info().vocab_size));
    }
    return out;
  }
  Ranks ranks(std::uint32_t count) const { return {*file_, count, GetParam().kv}; }

  const std::unique_ptr<const ModelFile> file_ =
      testing::open_tiny(baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype));
  const Ranks one_ = ranks(1);
  const std::vector<TokenId> tokens_ = some_tokens();
};

TEST_P(CudaRankTest, LogitsAreTheSameBits) {
  const auto want = Sequences(*one_.runner, 1, kTokens).logits(0, tokens_, kTokens);
  for (const std::uint32_t count : {2U, 4U}) {
    const Ranks several = ranks(count);
    EXPECT_EQ(several.runner->info().numerics_hash, one_.runner->info().numerics_hash);
    const auto got = Sequences(*several.runner, 1, kTokens).logits(0, tokens_, 23);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << count;
  }
}

// The first tokens are computed by `from` ranks, the arena moves, `to` ranks go on: as one rank.
TEST_P(CudaRankTest, BlocksGoBetweenDifferentNumbersOfRanks) {
  const std::vector<TokenId> next{5};
  const SamplingParams greedy{.temperature = 0.0F, .num_logprobs = 1};
  const auto prefill = [&](const Ranks& by, const Sequences& sequences) {
    by.runner->run({{sequences.slice(0, tokens_, 0)}}, sequences.arena(), [](std::uint32_t) {});
  };
  const auto decode = [&](const Ranks& by, const Sequences& sequences) {
    StepPlan plan{{sequences.slice(0, next, kTokens)}};
    plan.slices[0].arrived = true;
    plan.slices[0].sample = true;
    plan.slices[0].sampling = &greedy;
    return *by.runner->run(plan, sequences.arena(), {}).sampled[0];
  };
  const Sequences stayed(*one_.runner, 1, kTokens + 1);
  prefill(one_, stayed);
  const std::size_t bytes = stayed.arena().bytes();
  const std::vector<std::byte> blocks(stayed.arena().base, stayed.arena().base + bytes);
  const SampledToken want = decode(one_, stayed);
  const Ranks two = ranks(2);
  std::deque<Sequences> kept;  // a device knows an arena by its place
  for (const auto& [from, to] : {std::pair{&two, &one_}, {&one_, &two}, {&two, &two}}) {
    const Sequences& sent = kept.emplace_back(*from->runner, 1, kTokens + 1);
    prefill(*from, sent);
    EXPECT_EQ(std::memcmp(sent.arena().base, blocks.data(), bytes), 0);
    const Sequences& arrived = kept.emplace_back(*to->runner, 1, kTokens + 1);
    std::memcpy(arrived.arena().base, sent.arena().base, bytes);
    const SampledToken got = decode(*to, arrived);
    EXPECT_EQ(got.token, want.token);
    EXPECT_EQ(got.logprob, want.logprob);
  }
}

// Sampled on the first rank's device.
TEST_P(CudaRankTest, SampledAnswersAreTheSame) {
  const SamplingParams params{.temperature = 1.1F, .top_p = 0.9F, .seed = 4};
  const auto answer = [&](const Ranks& by) {
    return Sequences(*by.runner, 1, 2 * kTokens).generate(0, tokens_, 5, 64, params);
  };
  EXPECT_EQ(answer(ranks(2)), answer(one_));
}

// The others would wait for it for ever.
TEST_P(CudaRankTest, ARankThatCannotGoOnEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run_with_failure = [&] {
    const auto fail_at = reinterpret_cast<void (*)(int, int, int)>(
        ::dlsym(::dlopen(FAKE_NCCL, RTLD_NOW), "fake_nccl_fail"));
    const Ranks two = ranks(2);
    fail_at(1, 3, 2);
    Sequences(*two.runner, 1, kTokens).logits(0, tokens_, kTokens);
  };
  EXPECT_DEATH(run_with_failure(),
               "rank 1 of 2 cannot reach the others: NCCL says .unhandled system error. .2.");
}

INSTANTIATE_TEST_SUITE_P(Models,
                         CudaRankTest,
                         ::testing::Values(Case{"llama", DType::Q8_0, KvDType::I16},
                                           Case{"llama", DType::Q4_K, KvDType::I8},
                                           Case{"gemma3", DType::Q4_1, KvDType::F16}),
                         [](const auto& info) {
                           return info.param.architecture + "_" +
                                  std::string(kernels::info(info.param.dtype).name) + "_" +
                                  std::string(to_string(info.param.kv));
                         });

}  // namespace
}  // namespace baton::engine
