#include "engine/model/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/tiny_model.h"

namespace baton::engine {
namespace {

using ::testing::HasSubstr;

class ModelFileTest : public ::testing::Test {
 protected:
  std::string write(const testing::TinyModelOptions& options) {
    const std::string path = ::testing::TempDir() + "model_file_test." +
                             std::to_string(::getpid()) + "." + std::to_string(paths_.size()) +
                             ".gguf";
    testing::write_tiny_model(path, options);
    paths_.push_back(path);
    return path;
  }
  void TearDown() override {
    for (const std::string& path : paths_) {
      std::filesystem::remove(path);
    }
  }
  std::vector<std::string> paths_;
};

TEST_F(ModelFileTest, ReadsMetadataAndTensorsOfATinyLlama) {
  const auto file = ModelFile::open(write({}));
  ASSERT_TRUE(file) << file.error().message;
  const ModelFile& f = **file;
  EXPECT_EQ(f.architecture(), "llama");
  EXPECT_EQ(f.get_uint("llama.block_count"), 2U);
  EXPECT_NEAR(f.get_float("llama.rope.freq_base").value_or(0), 1e5, 1e-3);
  EXPECT_EQ(f.get_bool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(f.get_uint("llama.rope.freq_base"), std::nullopt) << "a float is not an integer";
  EXPECT_EQ(f.get_string("no.such.key"), std::nullopt);
  const auto tensor = f.tensor("blk.1.ffn_down.weight");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->rows, 64U);
  EXPECT_EQ(tensor->cols, 96U);
  EXPECT_EQ(tensor->data.size(), 64U * 96 * 4);
  EXPECT_FALSE(f.has_tensor("output.weight"));
  const auto missing = f.tensor("output.weight");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::NotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("output.weight"));
}

TEST_F(ModelFileTest, FillsTheTokenizerSpecOfBothFamilies) {
  const auto llama = ModelFile::open(write({}));
  ASSERT_TRUE(llama);
  const auto bpe = (*llama)->tokenizer_spec();
  ASSERT_TRUE(bpe) << bpe.error().message;
  EXPECT_EQ(bpe->model, "gpt2");
  EXPECT_EQ(bpe->pre_tokenizer, "smollm");
  EXPECT_EQ(bpe->tokens.at(1), "<|im_start|>");
  EXPECT_EQ(bpe->kinds.at(1), TokenKind::Control);
  EXPECT_EQ(bpe->bos, 1);
  EXPECT_EQ(bpe->eos, 2);
  EXPECT_FALSE(bpe->add_bos);
  EXPECT_FALSE(bpe->merges.empty());
  EXPECT_TRUE(bpe->scores.empty());
  EXPECT_FALSE(bpe->chat_template.empty());

  const auto gemma = ModelFile::open(write({.architecture = "gemma3"}));
  ASSERT_TRUE(gemma);
  const auto spm = (*gemma)->tokenizer_spec();
  ASSERT_TRUE(spm) << spm.error().message;
  EXPECT_EQ(spm->model, "llama");
  EXPECT_TRUE(spm->add_bos);
  EXPECT_FALSE(spm->add_space_prefix);
  EXPECT_EQ(spm->scores.size(), spm->tokens.size());
  EXPECT_TRUE(spm->chat_template.empty());
  EXPECT_EQ(spm->architecture, "gemma3");
}

TEST_F(ModelFileTest, WeightsHashTellsModelsApart) {
  const auto one = ModelFile::open(write({.seed = 1}));
  const auto same = ModelFile::open(write({.seed = 1}));
  const auto other = ModelFile::open(write({.seed = 2}));
  ASSERT_TRUE(one && same && other);
  EXPECT_EQ((*one)->weights_hash(), (*same)->weights_hash());
  EXPECT_NE((*one)->weights_hash(), (*other)->weights_hash());
}

TEST_F(ModelFileTest, SaysWhatIsWrongWithAFile) {
  const auto absent = ModelFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/model.gguf"));
  EXPECT_FALSE(ModelFile::open("/"));

  const std::string path = write({});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1000);
  const auto cut = ModelFile::open(path);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::InvalidModel);
  EXPECT_THAT(cut.error().message, HasSubstr(path));
  EXPECT_THAT(cut.error().message, HasSubstr("tensor \""));
  EXPECT_THAT(cut.error().message, HasSubstr("byte offset"));
  std::filesystem::resize_file(path, 0);
  EXPECT_FALSE(ModelFile::open(path));
}

TEST(RealModelFile, CataloguedModelsOpen) {
  const char* cache = std::getenv("BATON_CACHE");
  const char* home = std::getenv("HOME");
  const std::string folder =
      (cache != nullptr ? std::string(cache)
                        : std::string(home != nullptr ? home : ".") + "/.cache/baton") +
      "/models/";
  unsigned opened = 0;
  for (const auto& [name, vocab] : {std::pair{"SmolLM2-135M-Instruct.Q4_1.gguf", 49152U},
                                    {"gemma-3-270m-q4_k_m.gguf", 262144U}}) {
    if (!std::filesystem::exists(folder + name)) {
      continue;
    }
    const auto file = ModelFile::open(folder + name);
    ASSERT_TRUE(file) << file.error().message;
    const auto spec = (*file)->tokenizer_spec();
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->tokens.size(), vocab);
    ++opened;
  }
  if (opened == 0) {
    GTEST_SKIP() << "no catalogued model in " << folder << "; `baton pull` fetches them";
  }
}

}  // namespace
}  // namespace baton::engine
