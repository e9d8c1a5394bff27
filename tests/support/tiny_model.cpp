// Weights are drawn directly in the stored form (random quants under a small scale), so that every
// dtype is covered without a quantiser.
#include "tests/support/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>

#include "common/base/check.h"
#include "tests/support/gguf_writer.h"

namespace baton::testing {
namespace {

using kernels::DType;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  // Uniform in [-1, 1).
  float symmetric() {
    return static_cast<float>(static_cast<double>(bits() >> 40U) / (1U << 23U) - 1.0);
  }

 private:
  std::uint64_t state_;
};

// For normal half floats only, which is what the scales here are. Truncates.
std::uint16_t half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const int exponent = static_cast<int>((bits >> 23U) & 0xffU) - 127 + 15;
  if (exponent <= 0) {
    return static_cast<std::uint16_t>(sign);
  }
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent) << 10U) |
                                    ((bits >> 13U) & 0x3ffU));
}

void put_half(std::byte* at, float value) {
  const std::uint16_t bits = half(value);
  std::memcpy(at, &bits, 2);
}

// One block of random weights, roughly uniform in [-amplitude, amplitude].
void random_block(Random& random, DType type, float amplitude, std::byte* at) {
  const auto& block = kernels::info(type);
  for (std::uint32_t i = 0; i < block.block_bytes; ++i) {
    at[i] = static_cast<std::byte>(random.bits());
  }
  const float jitter = 1.0F + 0.25F * random.symmetric();
  switch (type) {
    case DType::F32: {
      const float value = amplitude * random.symmetric();
      std::memcpy(at, &value, 4);
      break;
    }
    case DType::F16:
      put_half(at, amplitude * random.symmetric());
      break;
    case DType::BF16: {
      const auto bits = std::bit_cast<std::uint32_t>(amplitude * random.symmetric());
      const auto top = static_cast<std::uint16_t>(bits >> 16U);
      std::memcpy(at, &top, 2);
      break;
    }
    case DType::Q4_0:
      put_half(at, jitter * amplitude / 8);
      break;
    case DType::Q5_0:
      put_half(at, jitter * amplitude / 16);
      break;
    case DType::Q8_0:
      put_half(at, jitter * amplitude / 128);
      break;
    case DType::Q4_1:
      put_half(at, jitter * amplitude * 2 / 15);
      put_half(at + 2, -jitter * amplitude);
      break;
    case DType::Q5_1:
      put_half(at, jitter * amplitude * 2 / 31);
      put_half(at + 2, -jitter * amplitude);
      break;
    case DType::Q4_K:  // scales and mins of 6 bits: about half of 63 each
      put_half(at, jitter * amplitude * 2 / (15 * 32));
      put_half(at + 2, jitter * amplitude / 32);
      break;
    case DType::Q5_K:
      put_half(at, jitter * amplitude * 2 / (31 * 32));
      put_half(at + 2, jitter * amplitude / 32);
      break;
    case DType::Q6_K:  // scales of 8 signed bits
      put_half(at + block.block_bytes - 2, jitter * amplitude / (32 * 64));
      break;
  }
}

class Builder {
 public:
  explicit Builder(const TinyModelOptions& options)
      : o_(options),
        random_(options.seed),
        experts_(is("qwen3moe") && o_.experts == 0 ? 4 : o_.experts) {}

  std::vector<std::byte> build() {
    constexpr std::array kKnown{"llama", "qwen2", "qwen3", "qwen3moe", "phi3", "gemma2", "gemma3"};
    BATON_CHECK(std::find(kKnown.begin(), kKnown.end(), o_.architecture) != kKnown.end(),
                "unknown tiny model");
    hyperparameters();
    is_gemma() ? sentencepiece_vocabulary() : bpe_vocabulary();
    weights();
    return out_.bytes();
  }

 private:
  bool is(std::string_view architecture) const { return o_.architecture == architecture; }
  bool is_gemma() const { return is("gemma2") || is("gemma3"); }
  bool has_qk_norm() const { return is("gemma3") || is("qwen3") || is("qwen3moe"); }

  void hyperparameters() {
    const std::string& arch = o_.architecture;
    out_.add_string("general.architecture", arch);
    // llama.cpp expects the tokens of a real Phi 3 in a file that bears its name.
    out_.add_string("general.name", "tiny " + (is("phi3") ? "phi" : arch));
    out_.add_uint("general.alignment", 32);
    out_.add_uint(arch + ".context_length", o_.context_length);
    out_.add_uint(arch + ".embedding_length", o_.dim);
    out_.add_uint(arch + ".block_count", o_.layers);
    out_.add_uint(arch + ".feed_forward_length", o_.ffn);
    out_.add_uint(arch + ".attention.head_count", o_.heads);
    out_.add_uint(arch + ".attention.head_count_kv", o_.kv_heads);
    out_.add_uint(arch + ".attention.key_length", o_.head_dim);
    out_.add_uint(arch + ".attention.value_length", o_.head_dim);
    out_.add_float(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
    out_.add_float(arch + ".rope.freq_base", is_gemma() ? 1e6F : 1e5F);
    if (is_gemma() || o_.all_windowed) {
      out_.add_uint(arch + ".attention.sliding_window", o_.window);
    }
    if (!is_gemma()) {
      out_.add_uint(arch + ".rope.dimension_count", o_.head_dim);
    }
    if (is("gemma2")) {  // low enough to bend what random weights give
      out_.add_float(arch + ".attn_logit_softcapping", 2.0F);
      out_.add_float(arch + ".final_logit_softcapping", 3.0F);
    }
    if (experts_ > 0) {
      out_.add_uint(arch + ".expert_count", experts_);
      out_.add_uint(arch + ".expert_used_count", o_.experts_used);
      if (is("qwen3moe")) {
        out_.add_uint(arch + ".expert_feed_forward_length", o_.ffn);
      }
    }
    if (!o_.rope_scaling.empty()) {
      out_.add_string(arch + ".rope.scaling.type", o_.rope_scaling);
    }
    if (o_.rope_factor != 1.0F) {
      out_.add_float(arch + ".rope.scaling.factor", o_.rope_factor);
    }
    if (o_.original_context != 0) {
      out_.add_uint(arch + ".rope.scaling.original_context_length", o_.original_context);
    }
    if (is("phi3") && o_.rope_factors) {
      out_.add_float(arch + ".rope.scaling.attn_factor", 1.19F);
    }
  }

  void bpe_vocabulary() {
    // GPT-2's byte alphabet: printable bytes stand for themselves, the rest moves to U+0100 on.
    std::array<std::string, 256> byte_text;
    unsigned moved = 0;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const unsigned code = printable ? b : 256 + moved++;
      byte_text[b] = code < 128 ? std::string(1, static_cast<char>(code))
                                : std::string{static_cast<char>(0xc0U | (code >> 6U)),
                                              static_cast<char>(0x80U | (code & 0x3fU))};
    }
    std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    std::vector<std::int32_t> kinds{3, 3, 3};
    for (const std::string& text : byte_text) {
      tokens.push_back(text);
      kinds.push_back(1);
    }
    const std::string space = byte_text[' '];
    const std::vector<std::string> merges{
        "h e",          "t he",       "i n",        "e r",  "a n",    "o n",    "an d", "o r",
        space + " the", space + " a", space + " s", "l l",  "he ll",  "hell o", "u s",  "us er",
        "in g",         "e d",        space + " w", "or l", "worl d", "s t"};
    for (const std::string& merge : merges) {
      const std::size_t gap = merge.find(' ');
      tokens.push_back(merge.substr(0, gap) + merge.substr(gap + 1));
      kinds.push_back(1);
    }
    vocab_ = tokens.size();
    out_.add_string("tokenizer.ggml.model", "gpt2");
    out_.add_string("tokenizer.ggml.pre", "smollm");
    out_.add_strings("tokenizer.ggml.tokens", tokens);
    out_.add_ints("tokenizer.ggml.token_type", kinds);
    out_.add_strings("tokenizer.ggml.merges", merges);
    out_.add_uint("tokenizer.ggml.bos_token_id", 1);
    out_.add_uint("tokenizer.ggml.eos_token_id", 2);
    out_.add_uint("tokenizer.ggml.unknown_token_id", 0);
    out_.add_bool("tokenizer.ggml.add_bos_token", false);
    out_.add_string("tokenizer.chat_template", kChatMl);
  }

  void sentencepiece_vocabulary() {
    std::vector<std::string> tokens{
        "<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"};
    std::vector<std::int32_t> kinds{3, 3, 3, 2, 3, 3};
    std::vector<float> scores(tokens.size(), 0.0F);
    for (unsigned b = 0; b < 256; ++b) {
      tokens.push_back(fmt::format("<0x{:02X}>", b));
      kinds.push_back(6);
      scores.push_back(0.0F);
    }
    const auto piece = [&](std::string text) {
      tokens.push_back(std::move(text));
      kinds.push_back(1);
      scores.push_back(-static_cast<float>(tokens.size()));
    };
    for (const char* text :
         {"th",      "the", "in",   "er",         "an",          "and",       "on",
          "he",      "ll",  "hell", "hello",      "ing",         "\u2581the", "\u2581a",
          "\u2581w", "or",  "orl",  "\u2581worl", "\u2581world", "\u2581"}) {
      piece(text);
    }
    for (char c = '!'; c <= '~'; ++c) {
      piece(std::string(1, c));
    }
    vocab_ = tokens.size();
    out_.add_string("tokenizer.ggml.model", "llama");
    out_.add_string("tokenizer.ggml.pre", "default");
    out_.add_strings("tokenizer.ggml.tokens", tokens);
    out_.add_floats("tokenizer.ggml.scores", scores);
    out_.add_ints("tokenizer.ggml.token_type", kinds);
    out_.add_uint("tokenizer.ggml.bos_token_id", 2);
    out_.add_uint("tokenizer.ggml.eos_token_id", 1);
    out_.add_uint("tokenizer.ggml.unknown_token_id", 3);
    out_.add_bool("tokenizer.ggml.add_bos_token", true);
    out_.add_bool("tokenizer.ggml.add_eos_token", false);
    out_.add_bool("tokenizer.ggml.add_space_prefix", false);
  }

  std::vector<std::byte> random_matrix(DType type,
                                       std::uint64_t rows,
                                       std::uint64_t cols,
                                       float amplitude) {
    const auto& block = kernels::info(type);
    BATON_CHECK(cols % block.block_elements == 0, "width does not suit the dtype");
    std::vector<std::byte> data(rows * kernels::row_bytes(type, cols));
    for (std::size_t at = 0; at < data.size(); at += block.block_bytes) {
      random_block(random_, type, amplitude, data.data() + at);
    }
    return data;
  }

  void matrix(const std::string& name,
              DType type,
              std::uint64_t rows,
              std::uint64_t cols,
              float amplitude) {
    const std::vector<std::byte> data = random_matrix(type, rows, cols, amplitude);
    out_.add_tensor(name, std::array{cols, rows}, type, data);
  }

  void norm(const std::string& name, std::uint64_t size) { vector(name, size, 1.0F, 0.2F); }

  void vector(const std::string& name, std::uint64_t size, float middle, float spread) {
    std::vector<float> values(size);
    for (float& value : values) {
      value = middle + spread * random_.symmetric();
    }
    out_.add_tensor(name, std::array{size}, DType::F32, std::as_bytes(std::span(values)));
  }

  void weights() {
    matrix("token_embd.weight", o_.embedding_dtype, vocab_, o_.dim, 0.5F);
    for (std::uint32_t layer = 0; layer < o_.layers; ++layer) {
      const std::string blk = fmt::format("blk.{}.", layer);
      attention(blk);
      norm(blk + "ffn_norm.weight", o_.dim);
      experts_ > 0 ? experts(blk) : feed_forward(blk);
      if (has_qk_norm()) {
        norm(blk + "attn_q_norm.weight", o_.head_dim);
        norm(blk + "attn_k_norm.weight", o_.head_dim);
      }
      if (is_gemma()) {
        norm(blk + "post_attention_norm.weight", o_.dim);
        norm(blk + "post_ffw_norm.weight", o_.dim);
      }
    }
    norm("output_norm.weight", o_.dim);
    if (!o_.tied_output) {
      matrix("output.weight", o_.embedding_dtype, vocab_, o_.dim, 0.5F);
    }
    if (o_.rope_factors && is("phi3")) {
      vector("rope_factors_short.weight", o_.head_dim / 2, 1.1F, 0.1F);
      vector("rope_factors_long.weight", o_.head_dim / 2, 3.0F, 1.5F);
    } else if (o_.rope_factors) {
      vector("rope_freqs.weight", o_.head_dim / 2, 4.0F, 3.0F);
    }
  }

  static float amplitude(std::uint64_t k) { return 2.0F / std::sqrt(static_cast<float>(k)); }

  void layer_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    matrix(name, o_.dtype, rows, cols, amplitude(cols));
  }

  void attention(const std::string& blk) {
    const std::uint64_t q = std::uint64_t{o_.heads} * o_.head_dim;
    const std::uint64_t kv = std::uint64_t{o_.kv_heads} * o_.head_dim;
    norm(blk + "attn_norm.weight", o_.dim);
    if (is("phi3")) {
      layer_matrix(blk + "attn_qkv.weight", q + 2 * kv, o_.dim);
    } else {
      layer_matrix(blk + "attn_q.weight", q, o_.dim);
      layer_matrix(blk + "attn_k.weight", kv, o_.dim);
      layer_matrix(blk + "attn_v.weight", kv, o_.dim);
    }
    layer_matrix(blk + "attn_output.weight", o_.dim, q);
    if (is("qwen2") || o_.biases) {
      vector(blk + "attn_q.bias", q, 0.0F, 0.7F);
      vector(blk + "attn_k.bias", kv, 0.0F, 0.7F);
      vector(blk + "attn_v.bias", kv, 0.0F, 0.7F);
    }
    if (o_.biases) {
      vector(blk + "attn_output.bias", o_.dim, 0.0F, 0.7F);
    }
  }

  void feed_forward(const std::string& blk) {
    if (is("phi3")) {
      layer_matrix(blk + "ffn_up.weight", std::uint64_t{2} * o_.ffn, o_.dim);
    } else {
      layer_matrix(blk + "ffn_gate.weight", o_.ffn, o_.dim);
      layer_matrix(blk + "ffn_up.weight", o_.ffn, o_.dim);
    }
    layer_matrix(blk + "ffn_down.weight", o_.dim, o_.ffn);
  }

  // All experts of a kind lie in one tensor of three dimensions.
  void experts(const std::string& blk) {
    matrix(blk + "ffn_gate_inp.weight", DType::F32, experts_, o_.dim, amplitude(o_.dim));
    for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"}) {
      stacked_matrix(blk + name, o_.ffn, o_.dim);
    }
    stacked_matrix(blk + "ffn_down_exps.weight", o_.dim, o_.ffn);
  }

  void stacked_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const std::vector<std::byte> data =
        random_matrix(o_.dtype, experts_ * rows, cols, amplitude(cols));
    out_.add_tensor(name, std::array{cols, rows, std::uint64_t{experts_}}, o_.dtype, data);
  }

  const TinyModelOptions& o_;
  Random random_;
  const std::uint32_t experts_;
  GgufWriter out_;
  std::uint64_t vocab_ = 0;
};

}  // namespace

TinyModelOptions tiny_model_for(std::string architecture, DType dtype) {
  TinyModelOptions options;
  options.architecture = std::move(architecture);
  options.dtype = dtype;
  options.dim = 256;
  options.ffn = 512;
  options.head_dim = 64;
  return options;
}

std::vector<NamedTinyModel> golden_tiny_models() {
  std::vector<NamedTinyModel> out;
  const auto add = [&](std::string name, const std::string& architecture) -> TinyModelOptions& {
    NamedTinyModel next{std::move(name), {}};
    next.options.architecture = architecture;
    next.options.seed = 100 + out.size();
    out.push_back(std::move(next));
    return out.back().options;
  };
  add("llama", "llama");
  add("llama_freqs", "llama").rope_factors = true;
  add("llama_biases", "llama").biases = true;
  TinyModelOptions& linear = add("llama_linear", "llama");
  linear.rope_scaling = "linear";
  linear.rope_factor = 4.0F;
  TinyModelOptions& yarn = add("llama_yarn", "llama");
  yarn.rope_scaling = "yarn";
  yarn.rope_factor = 4.0F;
  yarn.original_context = 512;
  add("mixtral", "llama").experts = 8;
  add("qwen2", "qwen2").tied_output = false;
  add("qwen3", "qwen3").head_dim = 32;
  TinyModelOptions& mixture = add("qwen3moe", "qwen3moe");
  mixture.experts = 16;
  mixture.experts_used = 4;
  add("phi3", "phi3");
  TinyModelOptions& near = add("phi3_short", "phi3");
  near.rope_factors = true;
  TinyModelOptions& far = add("phi3_long", "phi3");
  far.rope_factors = true;
  far.original_context = 1024;  // of 2048
  add("gemma2", "gemma2").layers = 4;
  add("gemma3", "gemma3").layers = 7;
  return out;
}

std::vector<std::byte> make_tiny_model(const TinyModelOptions& options) {
  return Builder(options).build();
}

void write_tiny_model(const std::string& path, const TinyModelOptions& options) {
  const std::vector<std::byte> bytes = make_tiny_model(options);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  BATON_CHECK(out.good(), "cannot write the tiny model to " + path);
}

}  // namespace baton::testing
