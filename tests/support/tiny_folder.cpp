#include "tests/support/tiny_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "engine/model/gguf.h"
#include "tests/support/safetensors_writer.h"

namespace baton::testing {
namespace {

using engine::GgufArray;
using engine::GgufFile;
using kernels::DType;

// What the tiny GGUF says of itself.
class Meta {
 public:
  explicit Meta(const GgufFile& file) : file_(file), arch_(text("general.architecture")) {}

  const std::string& arch() const { return arch_; }
  bool is(std::string_view name) const { return arch_ == name; }
  bool is_gemma() const { return is("gemma2") || is("gemma3"); }
  bool has_experts() const { return uint("expert_count") > 0; }

  std::string text(std::string_view key) const {
    const auto* value = find<std::string_view>(key);
    return value == nullptr ? "" : std::string(*value);
  }
  std::uint64_t uint(std::string_view key) const {
    const auto* value = find<std::uint64_t>(arch_ + "." + std::string(key));
    return value == nullptr ? 0 : *value;
  }
  double number(std::string_view key) const {
    const auto* value = find<double>(arch_ + "." + std::string(key));
    return value == nullptr ? 0 : *value;
  }
  std::string floats(std::string_view tensor) const {
    const auto& view = file_.tensors.find(tensor)->second;
    std::vector<float> values(view.cols);
    std::memcpy(values.data(), view.data.data(), view.data.size());
    return fmt::format("[{}]", fmt::join(values, ","));
  }

 private:
  template <class T>
  const T* find(std::string_view key) const {
    const auto it = file_.values.find(key);
    return it == file_.values.end() ? nullptr : std::get_if<T>(&it->second);
  }

  const GgufFile& file_;
  std::string arch_;
};

struct Name {
  std::string_view gguf;
  std::string_view hf;
};
constexpr std::array kEverywhere{Name{"attn_norm", "input_layernorm"},
                                 Name{"attn_q", "self_attn.q_proj"},
                                 Name{"attn_k", "self_attn.k_proj"},
                                 Name{"attn_v", "self_attn.v_proj"},
                                 Name{"attn_qkv", "self_attn.qkv_proj"},
                                 Name{"attn_output", "self_attn.o_proj"},
                                 Name{"attn_q_norm", "self_attn.q_norm"},
                                 Name{"attn_k_norm", "self_attn.k_norm"},
                                 Name{"ffn_gate", "mlp.gate_proj"},
                                 Name{"ffn_down", "mlp.down_proj"}};
constexpr std::array kMixtral{Name{"ffn_gate_inp", "block_sparse_moe.gate"},
                              Name{"ffn_gate_exps", "block_sparse_moe.experts.{}.w1"},
                              Name{"ffn_up_exps", "block_sparse_moe.experts.{}.w3"},
                              Name{"ffn_down_exps", "block_sparse_moe.experts.{}.w2"}};
constexpr std::array kQwen3Moe{Name{"ffn_gate_inp", "mlp.gate"},
                               Name{"ffn_gate_exps", "mlp.experts.{}.gate_proj"},
                               Name{"ffn_up_exps", "mlp.experts.{}.up_proj"},
                               Name{"ffn_down_exps", "mlp.experts.{}.down_proj"}};

// The folder's name of a tensor; {} stands for an expert's number.
std::string hf_name(const std::string& name, const Meta& meta) {
  const std::size_t dot = name.rfind('.');
  const std::string part = name.substr(dot);
  if (!name.starts_with("blk.")) {
    return (name.starts_with("token_embd")    ? "model.embed_tokens"
            : name.starts_with("output_norm") ? "model.norm"
                                              : "lm_head") +
           part;
  }
  const std::size_t end = name.find('.', 4);
  const std::string what = name.substr(end + 1, dot - end - 1);
  const auto in = [&](std::span<const Name> table) -> std::string_view {
    for (const Name& row : table) {
      if (row.gguf == what) {
        return row.hf;
      }
    }
    return {};
  };
  std::string_view hf = in(kEverywhere);
  if (hf.empty()) {
    hf = in(meta.is("qwen3moe") ? kQwen3Moe : kMixtral);
  }
  if (what == "ffn_up") {
    hf = meta.is("phi3") ? "mlp.gate_up_proj" : "mlp.up_proj";
  } else if (what == "ffn_norm") {
    hf = meta.is_gemma() ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  } else if (what == "post_attention_norm") {
    hf = "post_attention_layernorm";
  } else if (what == "post_ffw_norm") {
    hf = "post_feedforward_layernorm";
  }
  BATON_CHECK(!hf.empty(), "a tensor without a name: " + name);
  return fmt::format("model.layers.{}.{}{}", name.substr(4, end - 4), hf, part);
}

std::string_view type_name(DType type) {
  switch (type) {
    case DType::F32:
      return "F32";
    case DType::F16:
      return "F16";
    case DType::BF16:
      return "BF16";
    default:
      BATON_CHECK(false, "folders hold floats");
  }
}

// Rows of a head in GGUF's order (i, i + d/2 next to each other) back in the trained one.
std::vector<std::byte> unpaired(std::span<const std::byte> data,
                                std::size_t rows,
                                std::size_t heads) {
  std::vector<std::byte> out(data.size());
  const std::size_t row = data.size() / rows;
  const std::size_t half = rows / heads / 2;
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t i = 0; i < half; ++i) {
      for (std::size_t side = 0; side < 2; ++side) {
        std::memcpy(out.data() + (head * 2 * half + side * half + i) * row,
                    data.data() + (head * 2 * half + 2 * i + side) * row,
                    row);
      }
    }
  }
  return out;
}

std::vector<std::byte> less_one(std::span<const std::byte> data) {
  std::vector<std::byte> out(data.begin(), data.end());
  for (std::size_t at = 0; at < out.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, out.data() + at, sizeof(value));
    value -= 1.0F;
    std::memcpy(out.data() + at, &value, sizeof(value));
  }
  return out;
}

std::string model_type(const Meta& meta) {
  return meta.is("llama") && meta.has_experts() ? "mixtral"
         : meta.is("qwen3moe")                  ? "qwen3_moe"
         : meta.is("gemma3")                    ? "gemma3_text"
                                                : meta.arch();
}

std::string config_text(const Meta& meta, const TinyModelOptions& options, std::size_t vocab) {
  const bool gemma = meta.is_gemma();
  std::string text = fmt::format(
      R"({{"model_type":"{}","hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},)"
      R"("max_position_embeddings":{},"rms_norm_eps":{},"rope_theta":{},)"
      R"("tie_word_embeddings":{},"eos_token_id":[{}],"hidden_act":"{}","torch_dtype":"float32")",
      model_type(meta),
      meta.uint("embedding_length"),
      meta.uint("feed_forward_length"),
      meta.uint("block_count"),
      meta.uint("attention.head_count"),
      meta.uint("attention.head_count_kv"),
      meta.uint("attention.key_length"),
      vocab,
      meta.uint("context_length"),
      meta.number("attention.layer_norm_rms_epsilon"),
      meta.number("rope.freq_base"),
      options.tied_output,
      gemma ? 1 : 2,
      gemma ? "gelu_pytorch_tanh" : "silu");
  if (const auto window = meta.uint("attention.sliding_window"); window != 0) {
    text += fmt::format(R"(,"sliding_window":{})", window);
  }
  if (gemma) {
    text += fmt::format(R"(,"query_pre_attn_scalar":{})", meta.uint("attention.key_length"));
  }
  if (meta.is("gemma2")) {
    text += fmt::format(R"(,"attn_logit_softcapping":{},"final_logit_softcapping":{})",
                        meta.number("attn_logit_softcapping"),
                        meta.number("final_logit_softcapping"));
  }
  if (meta.has_experts()) {
    text += fmt::format(R"(,"num_experts":{0},"num_local_experts":{0},"num_experts_per_tok":{1},)"
                        R"("moe_intermediate_size":{2},"norm_topk_prob":true)",
                        meta.uint("expert_count"),
                        meta.uint("expert_used_count"),
                        meta.uint("feed_forward_length"));
  }
  const std::string scaling = meta.text(meta.arch() + ".rope.scaling.type");
  if (!scaling.empty()) {
    text += fmt::format(R"(,"rope_scaling":{{"type":"{}","factor":{})",
                        scaling,
                        std::max(meta.number("rope.scaling.factor"), 1.0));
    if (const auto original = meta.uint("rope.scaling.original_context_length"); original != 0) {
      text += fmt::format(R"(,"original_max_position_embeddings":{})", original);
    }
    if (scaling == "longrope") {
      text += fmt::format(R"(,"short_factor":{},"long_factor":{},"attention_factor":{})",
                          meta.floats("rope_factors_short.weight"),
                          meta.floats("rope_factors_long.weight"),
                          meta.number("rope.scaling.attn_factor"));
    }
    text += "}";
  }
  return text + "}\n";
}

std::vector<std::string> texts_of(const GgufFile& file, std::string_view key) {
  std::vector<std::string> out;
  if (const auto it = file.values.find(key); it != file.values.end()) {
    BATON_CHECK(engine::read_strings(std::get<GgufArray>(it->second), out), "no texts");
  }
  return out;
}

// Every pair of tokens that makes a token, those of one token together, in the tokens' order: the
// tiny vocabularies are in the order of their scores.
std::vector<std::string> merges_of(const std::vector<std::string>& tokens,
                                   const std::vector<std::int64_t>& kinds) {
  std::map<std::string, bool> mergeable;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    mergeable[tokens[i]] = kinds[i] == 1;
  }
  const auto is = [&](const std::string& text) {
    const auto it = mergeable.find(text);
    return it != mergeable.end() && it->second;
  };
  std::vector<std::string> out;
  for (const std::string& token : tokens) {
    for (std::size_t cut = 1; is(token) && cut < token.size(); ++cut) {
      if (is(token.substr(0, cut)) && is(token.substr(cut))) {
        out.push_back(
            fmt::format("[{},{}]", json_text(token.substr(0, cut)), json_text(token.substr(cut))));
      }
    }
  }
  return out;
}

std::string tokenizer_text(const GgufFile& file, bool gemma) {
  const auto tokens = texts_of(file, "tokenizer.ggml.tokens");
  std::vector<std::int64_t> kinds;
  BATON_CHECK(
      engine::read_ints(std::get<GgufArray>(file.values.find("tokenizer.ggml.token_type")->second),
                        kinds),
      "no kinds");
  std::string vocab;
  std::string added;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    vocab += fmt::format("{}{}:{}", i == 0 ? "" : ",", json_text(tokens[i]), i);
    if (kinds[i] == 3 || kinds[i] == 2) {
      added += fmt::format(
          R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
          R"("normalized":false,"special":true}})",
          added.empty() ? "" : ",",
          i,
          json_text(tokens[i]));
    }
  }
  std::vector<std::string> merges;
  if (gemma) {
    merges = merges_of(tokens, kinds);
  } else {
    for (const std::string& merge : texts_of(file, "tokenizer.ggml.merges")) {
      merges.push_back(json_text(merge));
    }
  }
  const std::string_view steps =
      gemma
          ? R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},)"
            R"("pre_tokenizer":null,"post_processor":{"type":"TemplateProcessing","single":[)"
            R"({"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]},)"
          : R"("normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
            R"({"type":"Digits","individual_digits":true},{"type":"ByteLevel",)"
            R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true}]},)"
            R"("post_processor":null,)";
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{}],{}"model":{{"type":"BPE","dropout":null,)"
      R"("unk_token":{},"byte_fallback":{},"ignore_merges":false,"vocab":{{{}}},"merges":[{}]}}}})",
      added,
      steps,
      gemma ? "\"<unk>\"" : "null",
      gemma,
      vocab,
      fmt::join(merges, ","));
}

}  // namespace

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  BATON_CHECK(out.good(), "cannot write " + path);
}

namespace {

// Sorts tensors into shards and keeps the index.
class ShardWriter {
 public:
  explicit ShardWriter(std::size_t shards) : writers_(shards) {}

  void add(const std::string& name,
           DType type,
           std::span<const std::uint64_t> shape,
           std::span<const std::byte> data) {
    const std::size_t shard = next_++ % writers_.size();
    writers_[shard].add(name, type_name(type), shape, data);
    map_ += fmt::format(
        "{}{}:{}", map_.empty() ? "" : ",", json_text(name), json_text(file_name(shard)));
  }

  void write(const std::string& folder) const {
    for (std::size_t i = 0; i < writers_.size(); ++i) {
      write_bytes(folder + "/" + file_name(i), writers_[i].bytes());
    }
    if (writers_.size() > 1) {
      write_text(folder + "/model.safetensors.index.json",
                 fmt::format("{{\"metadata\":{{\"total_size\":1}},\"weight_map\":{{{}}}}}", map_));
    }
  }

 private:
  std::string file_name(std::size_t shard) const {
    return writers_.size() == 1
               ? "model.safetensors"
               : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, writers_.size());
  }

  std::vector<SafetensorsWriter> writers_;
  std::string map_;
  std::size_t next_ = 0;
};

void write_tensors(const GgufFile& file, const Meta& meta, ShardWriter& out) {
  for (const auto& [name, view] : file.tensors) {
    if (name.starts_with("rope_")) {
      continue;  // config.json says it
    }
    const std::string hf = hf_name(name, meta);
    const bool vector = name.find("norm.") != std::string::npos || name.ends_with(".bias");
    std::vector<std::byte> data(view.data.begin(), view.data.end());
    if (meta.is("llama") && name.find("attn_q.") != std::string::npos) {
      data = unpaired(view.data, vector ? view.cols : view.rows, meta.uint("attention.head_count"));
    } else if (meta.is("llama") && name.find("attn_k.") != std::string::npos) {
      data =
          unpaired(view.data, vector ? view.cols : view.rows, meta.uint("attention.head_count_kv"));
    } else if (meta.is_gemma() && vector) {
      data = less_one(view.data);
    }
    if (name.find("_exps.") != std::string::npos) {
      const std::uint64_t experts = meta.uint("expert_count");
      const std::size_t each = data.size() / experts;
      for (std::uint64_t e = 0; e < experts; ++e) {
        out.add(fmt::format(fmt::runtime(hf), e),
                view.dtype,
                std::array<std::uint64_t, 2>{view.rows / experts, view.cols},
                std::span(data).subspan(e * each, each));
      }
    } else if (vector) {
      out.add(hf, view.dtype, std::array<std::uint64_t, 1>{view.cols}, data);
    } else {
      out.add(hf, view.dtype, std::array<std::uint64_t, 2>{view.rows, view.cols}, data);
    }
  }
}

}  // namespace

void write_tiny_folder(const std::string& folder,
                       const TinyModelOptions& options,
                       std::size_t shards) {
  std::filesystem::create_directories(folder);
  const std::vector<std::byte> bytes = make_tiny_model(options);
  const auto parsed = engine::parse_gguf(bytes, "tiny.gguf");
  BATON_CHECK(parsed.has_value(), "the tiny model does not parse");
  const Meta meta(*parsed);
  const bool gemma = meta.is_gemma();
  ShardWriter writer(shards);
  write_tensors(*parsed, meta, writer);
  writer.write(folder);
  const std::size_t vocab = parsed->tensors.find("token_embd.weight")->second.rows;
  write_text(folder + "/config.json", config_text(meta, options, vocab));
  write_text(folder + "/tokenizer.json", tokenizer_text(*parsed, gemma));
  // 10^30: what Python writes for a model without a limit.
  std::string tokenizer_config =
      R"({"model_max_length":1000000000000000019884624838656,"clean_up":false,)";
  if (gemma) {
    tokenizer_config += R"("bos_token":"<bos>","eos_token":{"content":"<eos>"}})";
  } else {
    tokenizer_config +=
        fmt::format(R"("bos_token":"<|im_start|>","eos_token":"<|im_end|>","chat_template":{}}})",
                    json_text(meta.text("tokenizer.chat_template")));
  }
  write_text(folder + "/tokenizer_config.json", tokenizer_config);
}

}  // namespace baton::testing
