// A folder and a GGUF file of the same weights are the same model, bit for bit; what a folder lacks
// or has wrong is refused with file and place.
#include "engine/model/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>

#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using baton::testing::SafetensorsWriter;
using baton::testing::TinyModelOptions;
using baton::testing::write_bytes;
using baton::testing::write_text;
using baton::testing::write_tiny_folder;
using kernels::DType;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_backend;
using testing::Sequences;

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "hf_folder_test." + std::to_string(::getpid());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string all = text(name);
    const std::size_t at = all.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << all.substr(0, 400);
    write_text(file(name), all.replace(at, from.size(), to));
  }
  void expect_refused(const std::string& message) const {
    const auto opened = ModelFile::open(folder_);
    ASSERT_FALSE(opened) << message;
    EXPECT_THAT(opened.error().message, HasSubstr(message));
    EXPECT_THAT(opened.error().message, HasSubstr(folder_));
  }

  std::string folder_;
};

std::vector<float> logits_of(const ModelFile& file) {
  const auto backend = make_backend("cpu2");
  auto runner = make_runner(file, *backend, {.max_step_tokens = 128});
  EXPECT_TRUE(runner) << runner.error().message;
  if (!runner) {
    return {};
  }
  std::vector<TokenId> tokens;
  for (int i = 0; i < 70; ++i) {
    tokens.push_back((i * i * 31 + 7 * i) % static_cast<int>((*runner)->info().vocab_size));
  }
  Sequences sequences(**runner, 1, tokens.size());
  return sequences.logits(0, tokens, 128);
}

TEST_F(HfFolderTest, TheSameWeightsAreTheSameModelBitForBit) {
  struct Model {
    const char* name;
    TinyModelOptions options;
  };
  std::vector<Model> models;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const char* architecture : {"llama", "gemma3"}) {
      TinyModelOptions options = baton::testing::tiny_model_for(architecture, dtype);
      options.embedding_dtype = dtype;
      options.window = 32;
      models.push_back({architecture, options});
      options.tied_output = false;
      models.push_back({architecture, options});
    }
  }
  for (const char* architecture : {"qwen2", "qwen3", "qwen3moe", "phi3", "gemma2"}) {
    models.push_back({architecture, {.architecture = architecture, .dtype = DType::BF16}});
  }
  models.push_back({"mixtral", {.dtype = DType::F16, .experts = 3}});
  models.push_back({"mistral", {.all_windowed = true}});
  models.push_back({"llama with biases", {.biases = true}});
  models.push_back({"qwen2 with yarn",
                    {.architecture = "qwen2",
                     .rope_scaling = "yarn",
                     .rope_factor = 4.0F,
                     .original_context = 64}});
  models.push_back({"phi3 with longrope",
                    {.architecture = "phi3",
                     .rope_scaling = "longrope",
                     .original_context = 64,
                     .rope_factors = true}});
  for (const auto& [name, options] : models) {
    const std::string gguf_path = folder_ + ".gguf";
    baton::testing::write_tiny_model(gguf_path, options);
    const auto gguf = ModelFile::open(gguf_path);
    fs::remove(gguf_path);
    ASSERT_TRUE(gguf) << gguf.error().message;
    const auto expected = logits_of(**gguf);
    std::uint64_t hash = 0;
    for (const std::size_t shards : {1U, 3U}) {
      fs::remove_all(folder_);
      write_tiny_folder(folder_, options, shards);
      const auto opened = ModelFile::open(folder_);
      ASSERT_TRUE(opened) << name << ": " << opened.error().message;
      EXPECT_EQ((*opened)->architecture(), (*gguf)->architecture());
      const auto logits = logits_of(**opened);
      ASSERT_EQ(logits.size(), expected.size()) << name;
      EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
          << name << ", " << kernels::info(options.dtype).name << ", tied " << options.tied_output
          << ", shards " << shards;
      EXPECT_THAT((*opened)->notes(), IsEmpty());
      EXPECT_TRUE(hash == 0 || hash == (*opened)->weights_hash()) << "sharding changes nothing";
      hash = (*opened)->weights_hash();
    }
  }
}

TEST_F(HfFolderTest, MatricesAreViewsIntoTheShards) {
  write_tiny_folder(folder_, {});
  const auto opened = ModelFile::open(folder_);
  ASSERT_TRUE(opened) << opened.error().message;
  const auto down = (*opened)->tensor("blk.1.ffn_down.weight");
  ASSERT_TRUE(down);
  EXPECT_EQ(down->owner, nullptr);
  EXPECT_EQ(down->rows, 64U);
  const auto q = (*opened)->tensor("blk.1.attn_q.weight");
  ASSERT_TRUE(q);
  EXPECT_NE(q->owner, nullptr) << "paired anew";
  EXPECT_FALSE((*opened)->has_tensor("output.weight"));
  EXPECT_FALSE((*opened)->has_tensor("blk.2.ffn_down.weight"));
  EXPECT_EQ((*opened)->tensor("blk.1.no.weight").error().code, ErrorCode::NotFound);
}

TEST_F(HfFolderTest, TheTokenizersAgree) {
  for (const char* architecture : {"llama", "gemma3"}) {
    TinyModelOptions options{.architecture = architecture};
    fs::remove_all(folder_);
    write_tiny_folder(folder_, options);
    const std::string gguf_path = folder_ + ".gguf";
    baton::testing::write_tiny_model(gguf_path, options);
    const auto gguf = ModelFile::open(gguf_path);
    fs::remove(gguf_path);
    const auto opened = ModelFile::open(folder_);
    ASSERT_TRUE(gguf && opened);
    const auto a = (*gguf)->tokenizer_spec();
    const auto b = (*opened)->tokenizer_spec();
    ASSERT_TRUE(b) << b.error().message;
    EXPECT_EQ(a->tokens, b->tokens);
    EXPECT_EQ(a->kinds, b->kinds);
    EXPECT_EQ(a->merges, b->merges);
    EXPECT_EQ(a->bos, b->bos);
    EXPECT_EQ(a->eos, b->eos);
    EXPECT_EQ(a->add_bos, b->add_bos);
    EXPECT_EQ(a->add_space_prefix, b->add_space_prefix);
    EXPECT_EQ(a->chat_template, b->chat_template);
    const auto theirs = Tokenizer::create(*a);
    const auto ours = Tokenizer::create(*b);
    ASSERT_TRUE(theirs && ours);
    for (const char* sample :
         {"hello  the world of thethe and anding", "<eos>in<|im_end|>ing", " \n é世 hellohello"}) {
      EXPECT_EQ((*theirs)->encode(sample, true, true), (*ours)->encode(sample, true, true))
          << sample;
    }
  }
}

TEST_F(HfFolderTest, SaysAllThatIsMissing) {
  fs::create_directories(folder_);
  write_text(file("pytorch_model.bin"), "x");
  write_text(file("tokenizer.model"), "x");
  expect_refused("lacks config.json, tokenizer.json, model.safetensors");
  expect_refused("pytorch_model.bin is not read");
  expect_refused("tokenizer.model alone is not read");
}

TEST_F(HfFolderTest, MissingAndWrongShardsAreNamed) {
  write_tiny_folder(folder_, {}, 3);
  fs::remove(file("model-00002-of-00003.safetensors"));
  expect_refused("lacks 1 of 3 shards: \"model-00002-of-00003.safetensors\"");
  fs::copy(file("model-00001-of-00003.safetensors"), file("model-00002-of-00003.safetensors"));
  expect_refused("is in ");
  write_bytes(file("model-00002-of-00003.safetensors"), SafetensorsWriter{}.bytes());
  expect_refused("is not in \"model-00002-of-00003.safetensors\"");
  replace("model.safetensors.index.json", "model-00001-of-00003", "../model");
  expect_refused("must be the name of a file in the folder");
  write_text(file("model.safetensors.index.json"), R"({"weight_map":{}})");
  expect_refused("names 0 files");
}

struct Change {
  const char* from;
  const char* to;
  const char* message;
};

TEST_F(HfFolderTest, ConfigsThatCannotBeComputedAreRefusedByKey) {
  write_tiny_folder(folder_, {});
  const std::string good = text("config.json");
  const std::vector<Change> changes{
      {"\"llama\"", "\"bert\"", "model_type: \"bert\" is not supported; known: llama, mistral"},
      {"\"model_type\":\"llama\",", "", "model_type is missing"},
      {"\"hidden_size\":64,", "", "hidden_size is missing"},
      {"\"hidden_size\":64", "\"hidden_size\":\"64\"", "hidden_size: must be a whole number"},
      {"\"num_hidden_layers\":2",
       "\"num_hidden_layers\":1e9",
       "num_hidden_layers: must be at most"},
      {"\"num_hidden_layers\":2", "\"num_hidden_layers\":1", "no place in a model"},
      {"\"vocab_size\":", "\"vocab_size\":1", "calls vocab_size"},
      {"\"silu\"", "\"relu\"", "hidden_act: only \"silu\""},
      {"\"rope_theta\"",
       "\"rope_scaling\":{\"rope_type\":\"dynamic\"},\"rope_theta\"",
       "\"dynamic\""},
      {"\"rope_theta\"", "\"rope_interleaved\":true,\"rope_theta\"", "rope_interleaved"},
      {"\"rope_theta\"",
       "\"quantization_config\":{\"quant_method\":\"fp8\"},\"rope_theta\"",
       "quant_method \"fp8\" is not supported; known: gptq, awq"},
      {"\"rope_theta\"",
       "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8},\"rope_theta\"",
       "8 bits"},
      {"\"rope_theta\"",
       "\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":48},"
       "\"rope_theta\"",
       "multiple of 32"},
      {"\"tie_word_embeddings\":true",
       "\"tie_word_embeddings\":false",
       "lm_head.weight is missing"},
      {"}\n", "", "not JSON"}};
  for (const Change& change : changes) {
    write_text(file("config.json"), good);
    replace("config.json", change.from, change.to);
    expect_refused(change.message);
  }
}

TEST_F(HfFolderTest, LlamaThreeScalesItsFrequencies) {
  write_tiny_folder(folder_, {});
  replace("config.json",
          "\"rope_theta\"",
          R"("rope_scaling":{"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,)"
          R"("high_freq_factor":4.0,"original_max_position_embeddings":512},"rope_theta")");
  const auto opened = ModelFile::open(folder_);
  ASSERT_TRUE(opened) << opened.error().message;
  const auto factors = (*opened)->tensor("rope_freqs.weight");
  ASSERT_TRUE(factors);
  ASSERT_EQ(factors->cols, 8U);
  std::array<float, 8> values;
  std::memcpy(values.data(), factors->data.data(), sizeof(values));
  EXPECT_EQ(values[0], 1.0F) << "short waves are kept";
  EXPECT_EQ(values[7], 32.0F) << "long ones slowed";
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_GE(values[i], values[i - 1]);
  }
}

TEST_F(HfFolderTest, AStrangeTensorOrTypeIsRefused) {
  write_tiny_folder(folder_, {});
  const std::vector<std::byte> data(16, std::byte{1});
  // Beside the model's own file an index may name more.
  fs::rename(file("model.safetensors"), file("a.safetensors"));
  const auto with = [&](const std::string& name, const char* type) {
    SafetensorsWriter writer;
    writer.add(name, type, std::array<std::uint64_t, 1>{*type == 'F' ? 4U : 16U}, data);
    write_bytes(file("b.safetensors"), writer.bytes());
    write_text(file("model.safetensors.index.json"),
               R"({"weight_map":{"model.norm.weight":"a.safetensors",")" + name +
                   R"(":"b.safetensors"}})");
  };
  with("model.layers.0.self_attn.rotary_emb.inv_freq", "F32");
  EXPECT_TRUE(ModelFile::open(folder_));
  with("model.layers.0.mlp.extra.weight", "F32");
  expect_refused("tensor \"model.layers.0.mlp.extra.weight\" has no place in a model");
  with("model.layers.0.mlp.gate_proj.qweight", "F32");
  expect_refused("without quantization_config");
  with("model.layers.0.mlp.down_proj.bias", "F32");
  expect_refused("a bias is not supported here");
}

TEST_F(HfFolderTest, BiasesOfZerosAreNone) {
  write_tiny_folder(folder_, {});
  fs::rename(file("model.safetensors"), file("a.safetensors"));
  SafetensorsWriter writer;
  const std::vector<std::byte> zero(64 * 4);
  writer.add("model.layers.0.mlp.down_proj.bias", "F32", std::array<std::uint64_t, 1>{64}, zero);
  writer.add("model.layers.0.self_attn.q_proj.bias", "F32", std::array<std::uint64_t, 1>{64}, zero);
  write_bytes(file("b.safetensors"), writer.bytes());
  write_text(file("model.safetensors.index.json"),
             R"({"weight_map":{"model.norm.weight":"a.safetensors",)"
             R"("model.layers.0.mlp.down_proj.bias":"b.safetensors"}})");
  const auto opened = ModelFile::open(folder_);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE((*opened)->has_tensor("blk.0.attn_q.bias"));
  EXPECT_FALSE(logits_of(**opened).empty());
}

TEST_F(HfFolderTest, UnsupportedElementTypesAreNamed) {
  write_tiny_folder(folder_, {});
  fs::remove(file("model.safetensors"));
  // The embedding opens; the first matrix asked for is of bytes.
  const auto opened = [&] {
    TinyModelOptions options;
    const std::string other = folder_ + ".other";
    write_tiny_folder(other, options);
    std::ifstream in(other + "/model.safetensors", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    fs::remove_all(other);
    // Same widths of bytes: F32 called I32.
    const std::string name = "\"model.layers.0.mlp.down_proj.weight\":{\"dtype\":\"F32\"";
    const std::size_t at = bytes.find(name);
    EXPECT_NE(at, std::string::npos);
    bytes[at + name.size() - 4] = 'I';
    write_text(file("model.safetensors"), bytes);
    return ModelFile::open(folder_);
  }();
  ASSERT_TRUE(opened) << opened.error().message;
  const auto tensor = (*opened)->tensor("blk.0.ffn_down.weight");
  ASSERT_FALSE(tensor);
  EXPECT_THAT(tensor.error().message, HasSubstr("element type I32 is not supported"));
}

TEST_F(HfFolderTest, SettingsGoByGgufsKeys) {
  write_tiny_folder(folder_, {});
  const std::string good = text("config.json");
  const auto opened = [&](const std::string& more) {
    write_text(file("config.json"), good);
    replace("config.json", "\"rope_theta\"", more + ",\"rope_theta\"");
    auto file = ModelFile::open(folder_);
    EXPECT_TRUE(file) << file.error().message;
    return std::move(*file);
  };
  EXPECT_EQ(opened("\"sliding_window\":512")->get_uint("llama.attention.sliding_window"), 512U);
  EXPECT_EQ(opened("\"sliding_window\":512,\"use_sliding_window\":false")
                ->get_uint("llama.attention.sliding_window"),
            0U);
  const auto yarn = opened(R"("rope_scaling":{"type":"yarn","factor":4.0,"attention_factor":1.0,)"
                           R"("original_max_position_embeddings":512,"beta_fast":16})");
  EXPECT_EQ(yarn->get_string("llama.rope.scaling.type"), "yarn");
  EXPECT_EQ(yarn->get_float("llama.rope.scaling.factor"), 4.0);
  EXPECT_EQ(yarn->get_uint("llama.rope.scaling.original_context_length"), 512U);
  EXPECT_EQ(yarn->get_float("llama.rope.scaling.yarn_beta_fast"), 16.0);
  EXPECT_NEAR(
      *yarn->get_float("llama.rope.scaling.attn_factor"), 1 / (0.1 * std::log(4) + 1), 1e-9);
  const auto longrope =
      opened(R"("rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],)"
             R"("long_factor":[1,2,3,4,5,6,7,8],)"
             R"("original_max_position_embeddings":512})");
  EXPECT_EQ(longrope->tensor("rope_factors_long.weight")->cols, 8U);
  EXPECT_NEAR(*longrope->get_float("llama.rope.scaling.attn_factor"),
              std::sqrt(1 + std::log(4) / std::log(512)),
              1e-9);
}

TEST_F(HfFolderTest, GemmaInsideALargerModel) {
  const TinyModelOptions options{.architecture = "gemma3"};
  write_tiny_folder(folder_, options);
  const auto flat = ModelFile::open(folder_);
  ASSERT_TRUE(flat) << flat.error().message;
  const auto expected = logits_of(**flat);
  std::ifstream in(file("model.safetensors"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  std::string header = bytes.substr(8, size);
  for (std::size_t at = 0; (at = header.find("\"model.", at)) != std::string::npos; at += 22) {
    header.insert(at + 1, "language_model.");
  }
  const std::string data = bytes.substr(8 + size);
  write_bytes(file("model.safetensors"),
              SafetensorsWriter::raw(header, std::as_bytes(std::span(data))));
  const std::string config = text("config.json");
  write_text(file("config.json"),
             R"({"model_type":"gemma3","eos_token_id":[1,5],"text_config":)" + config + "}");
  const auto nested = ModelFile::open(folder_);
  ASSERT_TRUE(nested) << nested.error().message;
  const auto logits = logits_of(**nested);
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace baton::engine
