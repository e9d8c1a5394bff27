// What each family's metadata mean as a DecoderSpec, and that metadata and tensors which cannot be
// are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "engine/model/gguf_spec.h"
#include "engine/model/model.h"
#include "tests/support/tiny_model.h"

namespace baton::engine {
namespace {

using baton::testing::TinyModelOptions;
using ::testing::HasSubstr;

// Metadata and tensors without a file.
class FakeFile final : public ModelFile {
 public:
  explicit FakeFile(std::string architecture) : architecture_(std::move(architecture)) {
    set("context_length", 4096);
    set("embedding_length", 64);
    set("block_count", 8);
    set("feed_forward_length", 96);
    set("attention.head_count", 4);
    set("attention.head_count_kv", 2);
  }

  FakeFile& set(const std::string& name, std::uint64_t value) {
    uints_[architecture_ + "." + name] = value;
    return *this;
  }
  FakeFile& set_float(const std::string& name, double value) {
    floats_[architecture_ + "." + name] = value;
    return *this;
  }
  FakeFile& set_text(const std::string& name, std::string value) {
    texts_[architecture_ + "." + name] = std::move(value);
    return *this;
  }
  FakeFile& add_vector(const std::string& name, std::vector<float> values) {
    vectors_[name] = std::move(values);
    return *this;
  }

  std::string_view architecture() const override { return architecture_; }
  std::optional<std::uint64_t> get_uint(std::string_view key) const override {
    return find(uints_, key);
  }
  std::optional<double> get_float(std::string_view key) const override {
    return find(floats_, key);
  }
  std::optional<bool> get_bool(std::string_view) const override { return std::nullopt; }
  std::optional<std::string_view> get_string(std::string_view key) const override {
    const auto it = texts_.find(key);
    return it == texts_.end() ? std::nullopt : std::optional<std::string_view>(it->second);
  }
  Result<ModelTensor> tensor(std::string_view name) const override {
    const auto it = vectors_.find(name);
    if (it == vectors_.end()) {
      return fail(ErrorCode::NotFound, "no tensor");
    }
    return ModelTensor{
        {kernels::DType::F32, 1, it->second.size(), std::as_bytes(std::span(it->second))}, nullptr};
  }
  bool has_tensor(std::string_view name) const override { return vectors_.contains(name); }
  std::uint64_t weights_hash() const override { return 0; }
  Result<DecoderSpec> decoder_spec() const override { return read_gguf_spec(*this); }
  Result<TokenizerSpec> tokenizer_spec() const override { return TokenizerSpec{}; }

 private:
  template <class T>
  static std::optional<T> find(const std::map<std::string, T, std::less<>>& map,
                               std::string_view key) {
    const auto it = map.find(key);
    return it == map.end() ? std::nullopt : std::optional<T>(it->second);
  }

  std::string architecture_;
  std::map<std::string, std::uint64_t, std::less<>> uints_;
  std::map<std::string, double, std::less<>> floats_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, std::vector<float>, std::less<>> vectors_;
};

DecoderSpec read(const FakeFile& file) {
  auto spec = read_gguf_spec(file);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? std::move(*spec) : DecoderSpec{};
}

std::string error_of(const FakeFile& file) {
  const auto spec = read_gguf_spec(file);
  if (spec) {
    return "accepted";
  }
  EXPECT_EQ(spec.error().code, ErrorCode::InvalidModel);
  return spec.error().message;
}

std::vector<std::uint32_t> windows(const DecoderSpec& spec) {
  std::vector<std::uint32_t> out;
  for (const LayerSpec& layer : spec.layers) {
    out.push_back(layer.window);
  }
  return out;
}

TEST(Spec, LlamaIsPlain) {
  const DecoderSpec spec = read(FakeFile("llama"));
  EXPECT_EQ(spec.head_dim, 16U);
  EXPECT_EQ(spec.layers.size(), 8U);
  EXPECT_EQ(spec.gate, GateFunction::Silu);
  EXPECT_FALSE(spec.qkv_bias || spec.qk_norm || spec.post_norms || spec.output_bias);
  EXPECT_EQ(spec.experts.count, 0U);
  EXPECT_EQ(spec.logit_softcap, 0.0F);
  ASSERT_EQ(spec.ropes.size(), 1U);
  EXPECT_EQ(spec.ropes[0].style, kernels::RopeStyle::Interleaved);
  ASSERT_EQ(spec.ropes[0].frequencies.size(), 8U);
  EXPECT_NEAR(spec.ropes[0].frequencies[4], std::pow(1e4, -0.5), 1e-12);
  EXPECT_EQ(windows(read(FakeFile("llama").set("attention.sliding_window", 100))),
            std::vector<std::uint32_t>(8, 100));
}

TEST(Spec, GemmasHaveWindowsOnMostLayers) {
  const DecoderSpec two = read(FakeFile("gemma2"));
  EXPECT_EQ(windows(two), (std::vector<std::uint32_t>{4096, 0, 4096, 0, 4096, 0, 4096, 0}));
  EXPECT_EQ(two.attention_softcap, 50.0F);
  EXPECT_EQ(two.logit_softcap, 30.0F);
  EXPECT_EQ(two.embedding_scale, 8.0F);
  EXPECT_FALSE(two.qk_norm);
  EXPECT_TRUE(two.post_norms);

  const DecoderSpec three = read(FakeFile("gemma3").set("attention.sliding_window", 9));
  EXPECT_EQ(windows(three), (std::vector<std::uint32_t>{9, 9, 9, 9, 9, 0, 9, 9}));
  EXPECT_EQ(three.layers[4].rope, 1U);
  EXPECT_EQ(three.layers[5].rope, 0U);
  EXPECT_TRUE(three.qk_norm);
  EXPECT_EQ(three.attention_softcap, 0.0F);
  EXPECT_EQ(read(FakeFile("gemma3").set_float("final_logit_softcapping", 20)).logit_softcap, 20.0F);
  EXPECT_EQ(windows(read(FakeFile("gemma3"))), std::vector<std::uint32_t>(8, 0));
  // The largest Gemma 2 scales by its width a head.
  EXPECT_EQ(read(FakeFile("gemma2").set("block_count", 46).set("attention.key_length", 32))
                .attention_scale,
            0.25F);
}

TEST(Spec, QwenHasBiasesOrNorms) {
  EXPECT_TRUE(read(FakeFile("qwen2")).qkv_bias);
  EXPECT_FALSE(read(FakeFile("qwen2")).qk_norm);
  EXPECT_TRUE(read(FakeFile("qwen3")).qk_norm);
  EXPECT_FALSE(read(FakeFile("qwen3")).qkv_bias);
  EXPECT_EQ(read(FakeFile("qwen3")).ropes[0].style, kernels::RopeStyle::Halves);
}

TEST(Spec, ExpertsComeWithTheirOwnWidth) {
  const DecoderSpec mixtral =
      read(FakeFile("llama").set("expert_count", 8).set("expert_used_count", 2));
  EXPECT_EQ(mixtral.experts.count, 8U);
  EXPECT_EQ(mixtral.experts.used, 2U);
  EXPECT_TRUE(mixtral.experts.renormalise);
  EXPECT_EQ(mixtral.ffn, 96U);
  const DecoderSpec qwen = read(FakeFile("qwen3moe")
                                    .set("expert_count", 16)
                                    .set("expert_used_count", 4)
                                    .set("expert_feed_forward_length", 32));
  EXPECT_EQ(qwen.ffn, 32U);
  EXPECT_TRUE(qwen.qk_norm);
}

TEST(Spec, RopeScaling) {
  const auto plain = read(FakeFile("llama")).ropes[0].frequencies;
  // Older files give a factor without a type.
  for (const char* type : {"", "linear"}) {
    FakeFile file("llama");
    file.set_float("rope.scaling.factor", 4);
    const auto scaled = read(*type == 0 ? file : file.set_text("rope.scaling.type", type)).ropes[0];
    EXPECT_DOUBLE_EQ(scaled.frequencies[3], plain[3] / 4) << type;
    EXPECT_EQ(scaled.magnitude, 1.0);
  }
  FakeFile none("llama");
  none.set_float("rope.scaling.factor", 4).set_text("rope.scaling.type", "none");
  EXPECT_EQ(read(none).ropes[0].frequencies, plain);

  FakeFile freqs("llama");
  freqs.add_vector("rope_freqs.weight", {1, 1, 1, 2, 4, 8, 8, 8});
  EXPECT_DOUBLE_EQ(read(freqs).ropes[0].frequencies[4], plain[4] / 4);
}

// The ramp lies between the dimension that turns 32 times within 512 positions and the one that
// turns once.
TEST(Spec, YarnLeavesFastFrequenciesAlone) {
  const auto plain = read(FakeFile("llama")).ropes[0].frequencies;
  FakeFile file("llama");
  file.set_float("rope.scaling.factor", 4)
      .set_text("rope.scaling.type", "yarn")
      .set("rope.scaling.original_context_length", 512);
  const RopeSpec yarn = read(file).ropes[0];
  EXPECT_NEAR(yarn.magnitude, 0.1 * std::log(4.0) + 1, 1e-12);
  const double log_base = std::log(1e4);
  const double low = std::floor(16 * std::log(512 / (32 * 2 * M_PI)) / (2 * log_base));
  const double high = std::ceil(16 * std::log(512 / (2 * M_PI)) / (2 * log_base));
  ASSERT_LT(low, 2);
  ASSERT_LT(high, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    const double kept = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(yarn.frequencies[i], plain[i] * (kept + (1 - kept) / 4), 1e-12) << i;
  }
  file.set_float("rope.scaling.yarn_log_multiplier", 1.0);
  EXPECT_NEAR(read(file).ropes[0].magnitude, 1.0, 1e-12);
}

TEST(Spec, LongropeTakesTheFactorsThatTheContextAsksFor) {
  FakeFile file("phi3");
  file.set("rope.scaling.original_context_length", 1024)
      .set_float("rope.scaling.attn_factor", 1.2)
      .add_vector("rope_factors_short.weight", std::vector<float>(8, 2.0F))
      .add_vector("rope_factors_long.weight", std::vector<float>(8, 5.0F));
  const auto plain = read(FakeFile("phi3")).ropes[0].frequencies;
  for (const auto& [context, factor] : {std::pair{1024U, 2.0}, {1025U, 5.0}, {4096U, 5.0}}) {
    DecoderSpec spec = read(file);
    limit_context(spec, context);
    EXPECT_EQ(spec.context, context);
    EXPECT_DOUBLE_EQ(spec.ropes[0].frequencies[5], plain[5] / factor) << context;
    EXPECT_EQ(spec.ropes[0].magnitude, 1.2);
    EXPECT_TRUE(spec.ropes[0].long_frequencies.empty());
  }
  // Phi 4 turns a part of each head.
  FakeFile partly("phi3");
  EXPECT_EQ(read(partly.set("rope.dimension_count", 12)).ropes[0].frequencies.size(), 6U);
}

TEST(Spec, RefusesWhatCannotBeByName) {
  EXPECT_THAT(error_of(FakeFile("mamba")), HasSubstr("mamba"));
  const auto llama = [] { return FakeFile("llama"); };
  EXPECT_THAT(error_of(llama().set("expert_count", 4000)), HasSubstr("expert_count"));
  EXPECT_THAT(error_of(llama().set("expert_count", 8)), HasSubstr("expert_used_count"));
  EXPECT_THAT(error_of(llama().set("expert_count", 8).set("expert_used_count", 9)),
              HasSubstr("expert_used_count: must be 1 to 8"));
  const auto experts = [&] { return llama().set("expert_count", 8).set("expert_used_count", 2); };
  EXPECT_THAT(error_of(experts().set("expert_feed_forward_length", 0)),
              HasSubstr("expert_feed_forward_length"));
  EXPECT_THAT(error_of(experts().set("expert_gating_func", 2)), HasSubstr("expert_gating_func"));
  EXPECT_THAT(error_of(experts().set("expert_shared_count", 1)), HasSubstr("expert_shared_count"));
  EXPECT_THAT(error_of(experts().set_float("expert_weights_scale", 2.5)),
              HasSubstr("expert_weights_scale"));
  for (const char* dense : {"qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
    EXPECT_THAT(error_of(FakeFile(dense).set("expert_count", 8).set("expert_used_count", 2)),
                HasSubstr("expert_count"));
  }
  EXPECT_THAT(error_of(FakeFile("qwen3moe")), HasSubstr("expert_count"));

  EXPECT_THAT(error_of(llama().set_text("rope.scaling.type", "magic")),
              HasSubstr("rope.scaling.type"));
  EXPECT_THAT(error_of(llama().set_float("rope.scaling.factor", -1)),
              HasSubstr("rope.scaling.factor"));
  EXPECT_THAT(error_of(llama().set_float("rope.freq_base", 0.5)), HasSubstr("rope.freq_base"));
  EXPECT_THAT(error_of(llama().add_vector("rope_freqs.weight", std::vector<float>(7, 1.0F))),
              HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(error_of(llama().add_vector("rope_freqs.weight", std::vector<float>(8, 0.0F))),
              HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(error_of(FakeFile("phi3").add_vector("rope_factors_long.weight",
                                                   std::vector<float>(8, 1.0F))),
              HasSubstr("rope_factors_short.weight"));
  EXPECT_THAT(error_of(FakeFile("phi3")
                           .add_vector("rope_factors_short.weight", std::vector<float>(8, 1.0F))
                           .add_vector("rope_factors_long.weight", std::vector<float>(9, 1.0F))),
              HasSubstr("rope_factors_long.weight"));
  EXPECT_THAT(error_of(llama().set("rope.dimension_count", 12)), HasSubstr("rotated 12"));
  EXPECT_THAT(error_of(FakeFile("phi3").set("rope.dimension_count", 11)), HasSubstr("rotated 11"));
  EXPECT_THAT(error_of(llama().set("attention.sliding_window", 1ULL << 40)),
              HasSubstr("sliding_window"));
  EXPECT_THAT(error_of(FakeFile("gemma2").set("attention.sliding_window_pattern", 0)),
              HasSubstr("sliding_window_pattern"));
  EXPECT_THAT(error_of(FakeFile("gemma2").set_float("attn_logit_softcapping", -3)),
              HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(error_of(FakeFile("gemma2").set_float("final_logit_softcapping", std::nan(""))),
              HasSubstr("final_logit_softcapping"));
}

// Loads a tiny model after one name in its bytes was changed; gives the error.
std::string error_without(const TinyModelOptions& options, std::string_view name) {
  auto bytes = baton::testing::make_tiny_model(options);
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = all.find(name);
  EXPECT_NE(at, std::string_view::npos) << name;
  bytes[at + name.size() - 1] = std::byte{'X'};
  const std::string path = ::testing::TempDir() + "spec_test." + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto file = ModelFile::open(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(file) << file.error().message;
  const auto backend = kernels::make_reference_backend();
  const auto runner = make_runner(**file, *backend, {.max_step_tokens = 8});
  EXPECT_FALSE(runner) << name;
  return runner ? "accepted" : runner.error().message;
}

TEST(Weights, MissingTensorsAreNamed) {
  for (const auto& [architecture, name] : {std::pair{"qwen2", "blk.1.attn_k.bias"},
                                           {"qwen3", "blk.0.attn_q_norm.weight"},
                                           {"gemma2", "blk.1.post_ffw_norm.weight"},
                                           {"qwen3moe", "blk.1.ffn_gate_inp.weight"},
                                           {"qwen3moe", "blk.0.ffn_down_exps.weight"}}) {
    EXPECT_THAT(error_without({.architecture = architecture}, name), HasSubstr(name));
  }
  EXPECT_THAT(error_without({.architecture = "phi3"}, "blk.0.attn_qkv.weight"),
              HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(error_without({.architecture = "phi3"}, "blk.1.ffn_up.weight"),
              HasSubstr("blk.1.ffn_gate.weight"));
  // Biases of some layers only.
  EXPECT_THAT(error_without({.biases = true}, "blk.0.attn_q.bias"), HasSubstr("attn_k.bias"));
}

TEST(Weights, ExpertsThatDoNotFitTheCountAreNamed) {
  const auto backend = kernels::make_reference_backend();
  // The router has rows for 8; metadata say 6.
  TinyModelOptions options{.experts = 8};
  auto bytes = baton::testing::make_tiny_model(options);
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  bytes[all.find("llama.expert_count") + 18 + 4] = std::byte{6};
  const std::string path = ::testing::TempDir() + "spec_test." + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto file = ModelFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(file);
  const auto runner = make_runner(**file, *backend, {.max_step_tokens = 8});
  ASSERT_FALSE(runner);
  EXPECT_THAT(runner.error().message, HasSubstr("ffn_gate_inp"));
}

}  // namespace
}  // namespace baton::engine
