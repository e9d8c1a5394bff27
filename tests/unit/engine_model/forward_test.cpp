// The forward passes on tiny random models: backends agree, and a row's bits do not depend on
// chunking, batch, threads or what the arena held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "engine/model/model.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/open_tiny.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

using baton::testing::TinyModelOptions;
using kernels::DType;
using ::testing::HasSubstr;
using testing::make_backend;
using testing::open_tiny;
using testing::Sequences;
using ::testing::TestWithParam;

constexpr std::size_t kTokens = 150;  // several KV blocks, past the tiny window

struct Model {
  std::unique_ptr<const ModelFile> file;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<ModelRunner> runner;
};

Model make_model(const TinyModelOptions& options,
                 const std::string& backend,
                 const RunnerOptions& runner_options = {.max_step_tokens = 600}) {
  Model out{open_tiny(options), make_backend(backend), nullptr};
  auto runner = make_runner(*out.file, *out.backend, runner_options);
  EXPECT_TRUE(runner) << runner.error().message;
  out.runner = std::move(*runner);
  return out;
}

std::vector<TokenId> some_tokens(std::size_t count, std::uint32_t vocab, std::uint64_t seed) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<TokenId>((seed >> 33U) % vocab));
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Case {
  std::string architecture;
  DType dtype;
  std::string backend;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.architecture + "_" + std::string(kernels::info(info.param.dtype).name) + "_" +
         info.param.backend;
}

std::vector<Case> cases(std::initializer_list<const char*> backends) {
  std::vector<Case> out;
  for (const char* architecture : {"llama", "gemma3"}) {
    for (const DType dtype : {DType::F32, DType::Q8_0, DType::Q4_1, DType::Q4_K}) {
      for (const char* backend : backends) {
        out.push_back({architecture, dtype, backend});
      }
    }
  }
  for (const char* architecture : {"qwen2", "qwen3", "qwen3moe", "phi3", "gemma2"}) {
    for (const DType dtype : {DType::F32, DType::Q4_1}) {
      out.push_back({architecture, dtype, "cpu2"});
    }
  }
  return out;
}

class ForwardTest : public TestWithParam<Case> {
 protected:
  Model model() const {
    auto options = baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype);
    options.embedding_dtype = GetParam().dtype == DType::F32 ? DType::F32 : DType::Q8_0;
    return make_model(options, GetParam().backend);
  }
};

TEST_P(ForwardTest, ChunkingDoesNotChangeABit) {
  const Model m = model();
  const auto tokens = some_tokens(kTokens, m.runner->info().vocab_size, 1);
  Sequences sequences(*m.runner, 3, kTokens);
  const auto whole = sequences.logits(0, tokens, 512);
  for (const float value : whole) {
    ASSERT_TRUE(std::isfinite(value));
  }
  EXPECT_TRUE(same_bits(whole, sequences.logits(1, tokens, 16)));
  EXPECT_TRUE(same_bits(whole, sequences.logits(2, tokens, 1)));
}

// Nodes whose blocks have other sizes may share one request's keys and values.
TEST_P(ForwardTest, BlockSizeDoesNotChangeABit) {
  auto options = baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype);
  const SamplingParams params{.temperature = 0.9F, .seed = 4, .num_logprobs = 2};
  std::vector<float> logits;
  std::vector<TokenId> output;
  std::optional<std::uint64_t> numerics;
  for (const std::uint32_t block_tokens : {32U, 16U, 64U}) {
    const Model m = make_model(
        options, GetParam().backend, {.block_tokens = block_tokens, .max_step_tokens = 600});
    ASSERT_EQ(m.runner->info().layout.block_tokens, block_tokens);
    const auto tokens = some_tokens(kTokens, m.runner->info().vocab_size, 3);
    Sequences sequences(*m.runner, 2, kTokens + 16);
    const auto now = sequences.logits(0, tokens, 70);
    const auto generated = sequences.generate(1, tokens, 12, 70, params);
    EXPECT_EQ(numerics.value_or(m.runner->info().numerics_hash), m.runner->info().numerics_hash);
    EXPECT_TRUE(logits.empty() || same_bits(logits, now)) << block_tokens;
    EXPECT_TRUE(output.empty() || output == generated) << block_tokens;
    numerics = m.runner->info().numerics_hash;
    logits = now;
    output = generated;
  }
}

TEST_P(ForwardTest, BatchDoesNotChangeATokenOrLogprob) {
  const Model m = model();
  constexpr std::size_t kBatch = 8;
  const SamplingParams params{.temperature = 0.8F, .seed = 9, .num_logprobs = 5};
  std::vector<std::vector<TokenId>> prompts;
  for (std::size_t i = 0; i < kBatch; ++i) {
    prompts.push_back(some_tokens(20 + 7 * i, m.runner->info().vocab_size, 100 + i));
  }
  // Alone, one after the other.
  std::vector<std::vector<TokenId>> alone;
  std::vector<std::vector<SampledToken>> details(kBatch);
  {
    Sequences sequences(*m.runner, kBatch, 128);
    for (std::size_t i = 0; i < kBatch; ++i) {
      alone.push_back(sequences.generate(i, prompts[i], 12, 512, params, &details[i]));
    }
  }
  // Together: all prompts in one step, then decode steps of eight.
  Sequences sequences(*m.runner, kBatch, 128);
  std::vector<std::vector<TokenId>> outputs(kBatch);
  for (std::size_t step = 0; step < 12; ++step) {
    StepPlan plan;
    std::vector<std::vector<TokenId>> inputs(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      inputs[i] = step == 0 ? prompts[i] : std::vector<TokenId>{outputs[i].back()};
      const std::size_t first = step == 0 ? 0 : prompts[i].size() + step - 1;
      plan.slices.push_back(sequences.slice(i, inputs[i], first));
      plan.slices.back().sample = true;
      plan.slices.back().sampling = &params;
      plan.slices.back().prompt = prompts[i];
      plan.slices.back().output = outputs[i];
    }
    const StepResult result = m.runner->run(plan, sequences.arena(), {});
    for (std::size_t i = 0; i < kBatch; ++i) {
      ASSERT_TRUE(result.sampled[i]);
      const SampledToken& expected = details[i][step];
      EXPECT_EQ(result.sampled[i]->logprob, expected.logprob);
      ASSERT_EQ(result.sampled[i]->top.size(), 5U);
      EXPECT_EQ(result.sampled[i]->top[4].logprob, expected.top[4].logprob);
      outputs[i].push_back(result.sampled[i]->token);
    }
  }
  EXPECT_EQ(outputs, alone);
}

TEST_P(ForwardTest, TargetsAreScoredAsTheirLogitsSay) {
  const Model m = model();
  const std::uint32_t vocab = m.runner->info().vocab_size;
  const auto tokens = some_tokens(70, vocab, 3);
  Sequences sequences(*m.runner, 1, 80);
  const std::vector<float> rows = sequences.logits(0, tokens, tokens.size());
  // In two chunks, the second with a sampled row.
  std::vector<SampledToken> scored;
  SamplingParams params;
  params.temperature = 0;
  for (const auto& [first, last] : {std::pair<std::size_t, std::size_t>{0, 37}, {37, 70}}) {
    StepPlan plan{{sequences.slice(0, std::span(tokens).subspan(first, last - first), first)}};
    SequenceSlice& slice = plan.slices[0];
    slice.targets = std::span(tokens).subspan(first + 1, std::min<std::size_t>(last, 69) - first);
    slice.target_alternatives = 2;
    slice.sample = last == tokens.size();
    slice.sampling = &params;
    slice.prompt = tokens;
    const StepResult result = m.runner->run(plan, sequences.arena(), {});
    EXPECT_EQ(result.sampled[0].has_value(), slice.sample);
    scored.insert(scored.end(), result.scored[0].begin(), result.scored[0].end());
  }
  ASSERT_EQ(scored.size(), tokens.size() - 1);
  for (std::size_t i = 0; i < scored.size(); ++i) {
    const std::span<const float> row(rows.data() + i * vocab, vocab);
    double sum = 0;
    for (const float logit : row) {
      sum += std::exp(static_cast<double>(logit));
    }
    const double expected =
        static_cast<double>(row[static_cast<std::size_t>(tokens[i + 1])]) - std::log(sum);
    EXPECT_EQ(scored[i].token, tokens[i + 1]);
    EXPECT_NEAR(scored[i].logprob, expected, 1e-4) << i;
    ASSERT_EQ(scored[i].top.size(), 2U);
    EXPECT_EQ(scored[i].top[0].token, std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_GE(scored[i].top[0].logprob, scored[i].logprob);
  }
}

class CpuForwardTest : public ForwardTest {};

TEST_P(CpuForwardTest, AgreesWithTheReferenceBackend) {
  const Model m = model();
  auto options = baton::testing::tiny_model_for(GetParam().architecture, GetParam().dtype);
  options.embedding_dtype = GetParam().dtype == DType::F32 ? DType::F32 : DType::Q8_0;
  const Model reference = make_model(options, "reference");
  const auto tokens = some_tokens(kTokens, m.runner->info().vocab_size, 2);
  Sequences ours(*m.runner, 1, kTokens);
  Sequences theirs(*reference.runner, 1, kTokens);
  const auto a = ours.logits(0, tokens, 512);
  const auto b = theirs.logits(0, tokens, 512);
  ASSERT_EQ(a.size(), b.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  // Activations are rounded to 8 bits before each product where weights are quantised; then a close
  // call between two experts may fall otherwise.
  const bool experts = GetParam().architecture == "qwen3moe";
  const double tolerance = GetParam().dtype == DType::F32 ? 2e-3 : (experts ? 0.15 : 4e-2);
  EXPECT_LT(std::sqrt(error / norm), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         ForwardTest,
                         ::testing::ValuesIn(cases({"reference", "cpu1", "cpu2"})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Models, CpuForwardTest, ::testing::ValuesIn(cases({"cpu2"})), name_of);

TEST(Forward, ThreadsDoNotChangeABit) {
  for (const char* architecture :
       {"gemma3", "llama", "qwen2", "qwen3", "qwen3moe", "phi3", "gemma2"}) {
    const auto options = baton::testing::tiny_model_for(architecture, DType::Q4_1);
    const Model one = make_model(options, "cpu1");
    const Model two = make_model(options, "cpu2");
    const auto tokens = some_tokens(kTokens, one.runner->info().vocab_size, 3);
    Sequences first(*one.runner, 1, kTokens);
    Sequences second(*two.runner, 1, kTokens);
    EXPECT_TRUE(same_bits(first.logits(0, tokens, 64), second.logits(0, tokens, 512)))
        << architecture;
    EXPECT_EQ(one.runner->info().numerics_hash, two.runner->info().numerics_hash);
  }
}

// Which rows an expert multiplies together depends on the batch; no row's bits may.
TEST(Forward, ExpertsGiveARowTheSameBitsInAnyCompany) {
  auto options = baton::testing::tiny_model_for("qwen3moe", DType::Q8_0);
  options.experts = 8;
  options.experts_used = 3;
  const Model m = make_model(options, "cpu2");
  const std::size_t vocab = m.runner->info().vocab_size;
  const auto tokens = some_tokens(40, m.runner->info().vocab_size, 8);
  const auto other = some_tokens(40, m.runner->info().vocab_size, 9);
  Sequences sequences(*m.runner, 4, 64);
  const auto alone = sequences.logits(0, tokens, 1);
  const SamplingParams params{.temperature = 0.0F, .num_logprobs = 5};
  // The last row beside 39 rows of its own and 40 of another sequence.
  StepPlan plan{{sequences.slice(1, other, 0), sequences.slice(2, tokens, 0)}};
  plan.slices[1].sample = true;
  plan.slices[1].sampling = &params;
  plan.slices[1].prompt = tokens;
  const auto together = m.runner->run(plan, sequences.arena(), {});
  const auto single = [&] {
    sequences.logits(3, std::span(tokens).first(39), 1);
    StepPlan last{{sequences.slice(3, std::span(tokens).subspan(39), 39)}};
    last.slices[0].sample = true;
    last.slices[0].sampling = &params;
    last.slices[0].prompt = tokens;
    return m.runner->run(last, sequences.arena(), {});
  }();
  ASSERT_TRUE(together.sampled[1] && single.sampled[0]);
  EXPECT_EQ(together.sampled[1]->token, single.sampled[0]->token);
  EXPECT_EQ(together.sampled[1]->logprob, single.sampled[0]->logprob);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(together.sampled[1]->top[i].logprob, single.sampled[0]->top[i].logprob);
  }
  EXPECT_TRUE(same_bits(alone, sequences.logits(1, tokens, 512)));
  EXPECT_EQ(alone.size(), 40 * vocab);
}

// A step of one row reads the used experts of each layer and none of the others.
TEST(MakeRunner, CountsOnlyUsedExpertsAsWork) {
  TinyModelOptions options;
  options.experts_used = 2;
  options.experts = 2;
  const Model all = make_model(options, "reference");
  options.experts = 8;
  const Model few = make_model(options, "reference");
  const std::uint64_t router = std::uint64_t{2} * 6 * 64;  // layers, experts more, width
  EXPECT_EQ(few.runner->info().row_products, all.runner->info().row_products + router);
  EXPECT_EQ(few.runner->info().step_weight_bytes,
            all.runner->info().step_weight_bytes + router * sizeof(float));
  EXPECT_GT(few.runner->info().weight_bytes, 2 * all.runner->info().weight_bytes);
}

// Nodes that turn by other frequencies must not exchange keys.
TEST(MakeRunner, NumericsDifferWhereTheContextChoosesOtherFrequencies) {
  TinyModelOptions options{.architecture = "phi3", .original_context = 512, .rope_factors = true};
  const Model far = make_model(options, "reference");
  const Model near = make_model(options, "reference", {.max_context = 512});
  const Model middle = make_model(options, "reference", {.max_context = 600});
  EXPECT_EQ(far.runner->info().numerics_hash, middle.runner->info().numerics_hash);
  EXPECT_NE(far.runner->info().numerics_hash, near.runner->info().numerics_hash);
}

TEST(Forward, TheWindowHidesWhatIsFarBack) {
  // With every layer local, a token further back than layers * window cannot matter.
  for (const char* architecture : {"gemma3", "llama", "phi3", "qwen2"}) {
    TinyModelOptions options{
        .architecture = architecture, .layers = 2, .window = 16, .all_windowed = true};
    const Model m = make_model(options, "reference");
    auto tokens = some_tokens(80, m.runner->info().vocab_size, 4);
    Sequences sequences(*m.runner, 2, 80);
    const auto before = sequences.logits(0, tokens, 512);
    tokens[5] = (tokens[5] + 1) % static_cast<TokenId>(m.runner->info().vocab_size);
    const auto after = sequences.logits(1, tokens, 512);
    const std::size_t vocab = m.runner->info().vocab_size;
    const auto row_differs = [&](std::size_t row) {
      return std::memcmp(&before[row * vocab], &after[row * vocab], vocab * sizeof(float)) != 0;
    };
    EXPECT_FALSE(row_differs(4)) << "the past does not see the future";
    EXPECT_TRUE(row_differs(5));
    EXPECT_TRUE(row_differs(5 + 15));
    EXPECT_FALSE(row_differs(5 + 31)) << "out of reach of two windows: " << architecture;
  }
}

TEST(Forward, LayerDoneComesOnceALayerInOrderEvenWithoutASample) {
  const Model m = make_model({}, "reference");
  const auto tokens = some_tokens(10, m.runner->info().vocab_size, 5);
  Sequences sequences(*m.runner, 1, 64);
  std::vector<std::uint32_t> layers;
  const StepPlan plan{{sequences.slice(0, tokens, 0)}};
  const StepResult result =
      m.runner->run(plan, sequences.arena(), [&](std::uint32_t layer) { layers.push_back(layer); });
  EXPECT_EQ(layers, (std::vector<std::uint32_t>{0, 1}));
  ASSERT_EQ(result.sampled.size(), 1U);
  EXPECT_FALSE(result.sampled[0]);
  EXPECT_TRUE(m.runner->run({}, sequences.arena(), {}).sampled.empty());
}

TEST(Forward, UntiedOutputHeadIsUsed) {
  TinyModelOptions options;
  const Model tied = make_model(options, "reference");
  options.tied_output = false;
  const Model untied = make_model(options, "reference");
  const auto tokens = some_tokens(5, tied.runner->info().vocab_size, 6);
  Sequences a(*tied.runner, 1, 32);
  Sequences b(*untied.runner, 1, 32);
  EXPECT_FALSE(same_bits(a.logits(0, tokens, 8), b.logits(0, tokens, 8)));
}

TEST(MakeRunner, DescribesTheModel) {
  const Model m = make_model({.kv_heads = 1}, "reference", {.max_context = 512});
  const ModelInfo& info = m.runner->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.context_length, 512U);
  EXPECT_EQ(info.layout.layers, 2U);
  EXPECT_EQ(info.layout.kv_heads, 1U);
  EXPECT_EQ(info.layout.head_dim, 16U);
  EXPECT_EQ(info.layout.block_tokens, 32U);
  EXPECT_EQ(info.weights_hash, m.file->weights_hash());
  EXPECT_GT(info.weight_bytes, 0U);
  EXPECT_EQ(*kv_layout_of(*m.file, 32), info.layout);
}

TEST(MakeRunner, NamesWhatItCannotRun) {
  const auto backend = kernels::make_reference_backend();
  const auto error = [&](const auto& change) {
    const std::string path = ::testing::TempDir() + "bad." + std::to_string(::getpid()) + ".gguf";
    auto bytes = baton::testing::make_tiny_model({});
    change(bytes);
    std::FILE* out = std::fopen(path.c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), out);
    std::fclose(out);
    auto file = ModelFile::open(path);
    std::filesystem::remove(path);
    EXPECT_TRUE(file);
    const auto runner = make_runner(**file, *backend, {});
    EXPECT_FALSE(runner);
    EXPECT_EQ(runner.error().code, ErrorCode::InvalidModel);
    if (const auto layout = kv_layout_of(**file, 32); !layout) {  // what a node asks first
      EXPECT_EQ(layout.error().message, runner.error().message);
    }
    return runner.error().message;
  };
  const auto replace = [](std::string_view from, std::string_view to) {
    return [from, to](std::vector<std::byte>& bytes) {
      const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      std::memcpy(bytes.data() + all.find(from), to.data(), to.size());
    };
  };
  EXPECT_THAT(error([&](auto& bytes) {
                // The architecture's value follows its key, type and length.
                const std::string_view all(reinterpret_cast<const char*>(bytes.data()),
                                           bytes.size());
                const std::size_t at = all.find("general.architecture") + 20 + 4 + 8;
                std::memcpy(bytes.data() + at, "mamba", 5);
              }),
              ::testing::AllOf(HasSubstr("mamba"), HasSubstr("known: llama, ")));
  EXPECT_THAT(error(replace("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight")),
              HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(error(replace("llama.block_count", "llama.block_xxxxx")), HasSubstr("block_count"));
  EXPECT_THAT(error(replace("llama.attention.head_count_kv", "llama.attention.head_count_xx")),
              HasSubstr("attn_k"));
}

}  // namespace
}  // namespace baton::engine
