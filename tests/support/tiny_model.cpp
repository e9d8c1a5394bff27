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
  explicit Builder(const TinyModelOptions& options) : o_(options), random_(options.seed) {}

  std::vector<std::byte> build() {
    BATON_CHECK(o_.architecture == "llama" || o_.architecture == "gemma3", "unknown tiny model");
    hyperparameters();
    is_gemma() ? sentencepiece_vocabulary() : bpe_vocabulary();
    weights();
    return out_.bytes();
  }

 private:
  bool is_gemma() const { return o_.architecture == "gemma3"; }

  void hyperparameters() {
    const std::string& arch = o_.architecture;
    out_.add_string("general.architecture", arch);
    out_.add_string("general.name", "tiny " + arch);
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
    if (is_gemma()) {
      out_.add_uint(arch + ".attention.sliding_window", o_.window);
    } else {
      out_.add_uint(arch + ".rope.dimension_count", o_.head_dim);
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

  void matrix(const std::string& name,
              DType type,
              std::uint64_t rows,
              std::uint64_t cols,
              float amplitude) {
    const auto& block = kernels::info(type);
    BATON_CHECK(cols % block.block_elements == 0, "width does not suit the dtype");
    std::vector<std::byte> data(rows * kernels::row_bytes(type, cols));
    for (std::size_t at = 0; at < data.size(); at += block.block_bytes) {
      random_block(random_, type, amplitude, data.data() + at);
    }
    out_.add_tensor(name, std::array{cols, rows}, type, data);
  }

  void norm(const std::string& name, std::uint64_t size) {
    std::vector<float> values(size);
    for (float& value : values) {
      value = 1.0F + 0.2F * random_.symmetric();
    }
    out_.add_tensor(name, std::array{size}, DType::F32, std::as_bytes(std::span(values)));
  }

  void weights() {
    const auto amplitude = [](std::uint32_t k) { return 2.0F / std::sqrt(static_cast<float>(k)); };
    const std::uint64_t q = std::uint64_t{o_.heads} * o_.head_dim;
    const std::uint64_t kv = std::uint64_t{o_.kv_heads} * o_.head_dim;
    matrix("token_embd.weight", o_.embedding_dtype, vocab_, o_.dim, 0.5F);
    for (std::uint32_t layer = 0; layer < o_.layers; ++layer) {
      const std::string blk = fmt::format("blk.{}.", layer);
      norm(blk + "attn_norm.weight", o_.dim);
      matrix(blk + "attn_q.weight", o_.dtype, q, o_.dim, amplitude(o_.dim));
      matrix(blk + "attn_k.weight", o_.dtype, kv, o_.dim, amplitude(o_.dim));
      matrix(blk + "attn_v.weight", o_.dtype, kv, o_.dim, amplitude(o_.dim));
      matrix(blk + "attn_output.weight", o_.dtype, o_.dim, q, amplitude(o_.heads * o_.head_dim));
      norm(blk + "ffn_norm.weight", o_.dim);
      matrix(blk + "ffn_gate.weight", o_.dtype, o_.ffn, o_.dim, amplitude(o_.dim));
      matrix(blk + "ffn_up.weight", o_.dtype, o_.ffn, o_.dim, amplitude(o_.dim));
      matrix(blk + "ffn_down.weight", o_.dtype, o_.dim, o_.ffn, amplitude(o_.ffn));
      if (is_gemma()) {
        norm(blk + "attn_q_norm.weight", o_.head_dim);
        norm(blk + "attn_k_norm.weight", o_.head_dim);
        norm(blk + "post_attention_norm.weight", o_.dim);
        norm(blk + "post_ffw_norm.weight", o_.dim);
      }
    }
    norm("output_norm.weight", o_.dim);
    if (!o_.tied_output) {
      matrix("output.weight", o_.embedding_dtype, vocab_, o_.dim, 0.5F);
    }
  }

  const TinyModelOptions& o_;
  Random random_;
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
