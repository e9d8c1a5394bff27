// The tokenizers of both model files against ids of other programs, and the cuts of every
// pre-tokenizer. Goldens: tools/golden/make_tokenizer_goldens.py.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "engine/model/model_file.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

constexpr const char* kGoldenFile = "tests/golden/tokenizer.json";

std::string models_folder() {
  if (const char* cache = std::getenv("BATON_CACHE")) {  // NOLINT(concurrency-mt-unsafe)
    return std::string(cache) + "/models/";
  }
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe)
  return std::string(home != nullptr ? home : ".") + "/.cache/baton/models/";
}

class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(parser_.load(kGoldenFile).get(root_), simdjson::SUCCESS) << kGoldenFile;
    for (const auto text : root_["texts"].get_array()) {
      texts_.emplace_back(text.get_string().value());
    }
  }

  void check_file(const std::string& file) {
    const std::string path = models_folder() + file;
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "the model file is absent: " << path;
    }
    auto model = ModelFile::open(path);
    ASSERT_TRUE(model) << model.error().message;
    auto spec = (*model)->tokenizer_spec();
    ASSERT_TRUE(spec) << spec.error().message;
    int runs = 0;
    for (const auto run : root_["runs"].get_array()) {
      if (run["file"].get_string().value() != file) {
        continue;
      }
      ++runs;
      TokenizerSpec wanted = *spec;
      wanted.pre_tokenizer = std::string(run["pre"].get_string().value());
      auto tokenizer = Tokenizer::create(std::move(wanted));
      ASSERT_TRUE(tokenizer) << tokenizer.error().message;
      check_run(**tokenizer, run);
    }
    EXPECT_GE(runs, 2);
  }

  void check_run(const Tokenizer& tokenizer, simdjson::dom::element run) {
    const bool special = run["special"].get_bool().value();
    std::size_t index = 0;
    for (const auto entry : run["ids"].get_array()) {
      std::vector<TokenId> want;
      for (const auto id : entry.get_array()) {
        want.push_back(static_cast<TokenId>(id.get_int64().value()));
      }
      const std::string& text = texts_[index++];
      EXPECT_EQ(tokenizer.encode(text, special, false), want)
          << tokenizer.spec().pre_tokenizer << " special " << special << ": " << text;
    }
    EXPECT_EQ(index, texts_.size());
  }

  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
  std::vector<std::string> texts_;
};

TEST_F(Golden, ByteLevelBpe) {
  check_file("SmolLM2-135M-Instruct.Q4_1.gguf");
}

TEST_F(Golden, SentencePiece) {
  check_file("gemma-3-270m-q4_k_m.gguf");
}

TEST_F(Golden, PreTokenizerCuts) {
  for (const auto entry : root_["splits"].get_array()) {
    const std::string name(entry["pre"].get_string().value());
    const auto pre_tokenizer = PreTokenizer::create(name);
    ASSERT_TRUE(pre_tokenizer);
    std::size_t index = 0;
    for (const auto sizes : entry["sizes"].get_array()) {
      const std::string& text = texts_[index++];
      std::vector<std::uint32_t> want;
      for (const auto size : sizes.get_array()) {
        want.push_back((want.empty() ? 0 : want.back()) +
                       static_cast<std::uint32_t>(size.get_uint64().value()));
      }
      std::vector<std::uint32_t> ends;
      pre_tokenizer->split(text, ends);
      EXPECT_EQ(ends, want) << name << ": " << text;
    }
  }
}

// Every text comes back from its tokens, whole and streamed, except for bytes without a token.
TEST_F(Golden, RoundTripOfRealVocabularies) {
  for (const char* file : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    const std::string path = models_folder() + file;
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "the model file is absent: " << path;
    }
    auto model = ModelFile::open(path);
    ASSERT_TRUE(model) << model.error().message;
    auto tokenizer = Tokenizer::create((*model)->tokenizer_spec().value());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const std::string& text : texts_) {
      if (text.find('\x04') != std::string::npos || text.find("▁") != std::string::npos) {
        continue;
      }
      Detokenizer detokenizer(**tokenizer);
      std::string back;
      for (const TokenId id : (*tokenizer)->encode(text, false, false)) {
        back += detokenizer.push(id);
        EXPECT_TRUE(is_valid_utf8(back));
      }
      EXPECT_EQ(back + detokenizer.flush(), text) << file;
    }
  }
}

}  // namespace
}  // namespace baton::engine
