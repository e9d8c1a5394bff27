// Both real models against another engine, run on the same weights in float32: files made by
// tools/golden/make_model_goldens.py. The reference backend must agree closely on short prompts;
// the fast backend rounds activations to 8 bits before each product with quantised weights, so its
// unlikely tokens may wander, but the tokens it chooses are the same wherever the lead is clear.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "common/base/fixed_math.h"
#include "engine/model/model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

constexpr std::size_t kStep = 512;

std::string model_path(const std::string& name) {
  const char* cache = std::getenv("BATON_CACHE");
  const char* home = std::getenv("HOME");
  return (cache != nullptr ? std::string(cache)
                           : std::string(home != nullptr ? home : ".") + "/.cache/baton") +
         "/models/" + name + ".gguf";
}

struct Top {
  std::size_t position = 0;  // of the output
  std::vector<TokenId> ids;
  std::vector<double> logprobs;
};

struct Case {
  std::string text;
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;
  std::vector<double> leads;  // of the best token over the second, a position
  std::vector<Top> top;
};

template <class To, class From>
std::vector<To> numbers(simdjson::dom::element array) {
  std::vector<To> out;
  for (const From value : array.get_array()) {
    out.push_back(static_cast<To>(value));
  }
  return out;
}

std::vector<Case> read_cases(const std::string& name) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.load("tests/golden/" + name + ".json").get(root) != simdjson::SUCCESS) {
    ADD_FAILURE() << "cannot read the golden file of " << name;
    return {};
  }
  std::vector<Case> out;
  for (const auto test : root["cases"].get_array()) {
    Case next;
    next.text = std::string_view{test["text"]};
    next.prompt = numbers<TokenId, std::int64_t>(test["prompt"]);
    next.tokens = numbers<TokenId, std::int64_t>(test["tokens"]);
    next.leads = numbers<double, double>(test["leads"]);
    for (const auto top : test["top"].get_array()) {
      next.top.push_back({static_cast<std::size_t>(std::int64_t{top["position"]}),
                          numbers<TokenId, std::int64_t>(top["ids"]),
                          numbers<double, double>(top["logprobs"])});
    }
    out.push_back(std::move(next));
  }
  return out;
}

struct Differences {
  double worst = 0;
  double sum = 0;
  std::size_t count = 0;
};

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = model_path(GetParam());
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is absent; `baton pull` fetches it";
    }
    auto file = ModelFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    file_ = std::move(*file);
    cases_ = read_cases(GetParam());
    ASSERT_FALSE(cases_.empty());
  }

  void make(const std::string& backend) {
    backend_ = testing::make_backend(backend);
    auto runner = make_runner(*file_, *backend_, {.max_step_tokens = kStep});
    ASSERT_TRUE(runner) << runner.error().message;
    runner_ = std::move(*runner);
  }

  // Feeds the other engine's tokens, so that every kept position can be compared.
  void compare_logprobs(const Case& test, Differences& differences) {
    std::vector<TokenId> fed = test.prompt;
    fed.insert(fed.end(), test.tokens.begin(), test.tokens.end() - 1);
    testing::Sequences sequences(*runner_, 1, fed.size());
    const std::size_t last = test.prompt.size() - 1;
    for (std::size_t at = 0; at < last; at += kStep) {
      const auto part = std::span(fed).subspan(at, std::min(kStep, last - at));
      runner_->run({{sequences.slice(0, part, at)}}, sequences.arena(), {});
    }
    const std::vector<float> logits =
        runner_->logits(sequences.slice(0, std::span(fed).subspan(last), last), sequences.arena());
    const std::size_t vocab = runner_->info().vocab_size;
    std::vector<float> scratch(vocab);
    for (const Top& top : test.top) {
      const float* row = logits.data() + top.position * vocab;
      const float best = *std::max_element(row, row + vocab);
      const double log_sum =
          static_cast<double>(best) + fixed_log(fixed_exp_row(row, vocab, -best, scratch.data()));
      for (std::size_t i = 0; i < top.ids.size(); ++i) {
        const double ours = static_cast<double>(row[top.ids[i]]) - log_sum;
        const double difference = std::abs(ours - top.logprobs[i]);
        differences.worst = std::max(differences.worst, difference);
        differences.sum += difference;
        ++differences.count;
      }
    }
  }

  void report(const char* what, const Differences& d, std::size_t equal_tokens) {
    fmt::print(
        "{} on {}: {} log-probabilities, mean difference {:.4f}, worst {:.4f}; {} tokens equal\n",
        GetParam(),
        what,
        d.count,
        d.sum / static_cast<double>(d.count),
        d.worst,
        equal_tokens);
  }

  std::unique_ptr<const ModelFile> file_;
  std::vector<Case> cases_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(GoldenTest, TheReferenceBackendGivesTheSameLogprobs) {
  make("reference");
  Differences differences;
  for (const std::size_t index : {0U, 3U}) {  // short ones: this backend is slow
    compare_logprobs(cases_[index], differences);
  }
  report("reference", differences, 0);
  EXPECT_LE(differences.worst, 0.05);
}

TEST_P(GoldenTest, TheFastBackendChoosesTheSameTokens) {
  // A lead this clear is not turned around by rounding activations.
  constexpr double kClearLead = 0.5;
  make("cpu2");
  Differences differences;
  std::size_t equal_tokens = 0;
  for (const Case& test : cases_) {
    ASSERT_EQ(test.leads.size(), test.tokens.size());
    testing::Sequences sequences(*runner_, 1, test.prompt.size() + test.tokens.size());
    const std::vector<TokenId> ours =
        sequences.generate(0, test.prompt, test.tokens.size(), kStep, {.temperature = 0});
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] != test.tokens[i]) {
        EXPECT_LT(test.leads[i], kClearLead) << test.text << ": output position " << i;
        break;
      }
      ++equal_tokens;
    }
    compare_logprobs(test, differences);
  }
  report("cpu", differences, equal_tokens);
  EXPECT_LE(differences.sum / static_cast<double>(differences.count), 0.15);
  EXPECT_LE(differences.worst, 2.0);
}

INSTANTIATE_TEST_SUITE_P(RealModels,
                         GoldenTest,
                         ::testing::Values("SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, info.index == 0 ? 6 : 5);
                         });

}  // namespace
}  // namespace baton::engine
