// Tiny random models of every family against logits that another engine computed in float32 for the
// very same bytes: tests/golden/families.json, made by tools/golden/make_family_goldens.py.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/model/model.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

struct Golden {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> positions;
  std::vector<std::size_t> ids;
  std::vector<double> logits;  // [positions][ids]; empty: the file has no such model
};

template <class To>
std::vector<To> integers(simdjson::dom::element array) {
  std::vector<To> out;
  for (const std::int64_t value : array.get_array()) {
    out.push_back(static_cast<To>(value));
  }
  return out;
}

Golden read_golden(const std::string& name) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  Golden out;
  if (parser.load("tests/golden/families.json").get(root) != simdjson::SUCCESS) {
    ADD_FAILURE() << "cannot read tests/golden/families.json";
    return out;
  }
  out.tokens = integers<TokenId>(root["tokens"]);
  out.positions = integers<std::size_t>(root["positions"]);
  out.ids = integers<std::size_t>(root["ids"]);
  for (const auto test : root["cases"].get_array()) {
    if (std::string_view{test["name"]} != name) {
      continue;
    }
    for (const auto row : test["logits"].get_array()) {
      for (const double value : row.get_array()) {
        out.logits.push_back(value);
      }
    }
  }
  return out;
}

class FamilyGolden : public ::testing::TestWithParam<baton::testing::NamedTinyModel> {};

TEST_P(FamilyGolden, LogitsAgreeOnEveryBackend) {
  const Golden golden = read_golden(GetParam().name);
  ASSERT_EQ(golden.logits.size(), golden.positions.size() * golden.ids.size());
  const std::string path =
      ::testing::TempDir() + "family." + GetParam().name + "." + std::to_string(::getpid());
  baton::testing::write_tiny_model(path, GetParam().options);
  const auto file = ModelFile::open(path);
  std::filesystem::remove(path);  // the mapping stays
  ASSERT_TRUE(file) << file.error().message;
  for (const char* name : {"reference", "cpu2"}) {
    const auto backend = testing::make_backend(name);
    const auto runner = make_runner(**file, *backend, {.max_step_tokens = 128});
    ASSERT_TRUE(runner) << runner.error().message;
    testing::Sequences sequences(**runner, 1, golden.tokens.size());
    const std::vector<float> logits = sequences.logits(0, golden.tokens, 48);
    const std::size_t vocab = (*runner)->info().vocab_size;
    double squares = 0;
    double error = 0;
    double worst = 0;
    for (std::size_t p = 0; p < golden.positions.size(); ++p) {
      for (std::size_t i = 0; i < golden.ids.size(); ++i) {
        const double want = golden.logits[p * golden.ids.size() + i];
        const double got = logits[golden.positions[p] * vocab + golden.ids[i]];
        squares += want * want;
        error += (got - want) * (got - want);
        worst = std::max(worst, std::abs(got - want));
      }
    }
    const auto count = static_cast<double>(golden.logits.size());
    const double size = std::sqrt(squares / count);
    const double relative = std::sqrt(error / squares);
    std::printf("%s %s: relative error %.2g, worst %.2g, logits of about %.2g\n",
                GetParam().name.c_str(),
                name,
                relative,
                worst,
                size);
    // Keys and values are rounded to float16 here and were float32 there; all else is float32.
    EXPECT_LT(relative, 1e-3) << name;
    EXPECT_LT(worst, 1e-2 * size) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         FamilyGolden,
                         ::testing::ValuesIn(baton::testing::golden_tiny_models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton::engine
