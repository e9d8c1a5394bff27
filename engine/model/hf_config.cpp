#include "engine/model/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/model/gguf.h"
#include "engine/model/hf_rope.h"

namespace baton::engine {

void HfConfig::set(std::string_view key, HfValue value) {
  values.insert_or_assign(fmt::format("{}.{}", architecture, key), std::move(value));
}

namespace {

constexpr std::uint64_t kMaxCount = 1024;  // layers, heads, experts, width of a head
constexpr std::uint64_t kMaxVocabulary = 1U << 24U;
constexpr std::size_t kMaxEosIds = 64;

struct FamilyRow {
  std::string_view model_type;  // of config.json
  HfFamily family;
  std::string_view architecture;
};
constexpr std::array kHfFamilies{FamilyRow{"llama", HfFamily::Llama, "llama"},
                                 FamilyRow{"mistral", HfFamily::Llama, "llama"},
                                 FamilyRow{"mixtral", HfFamily::Mixtral, "llama"},
                                 FamilyRow{"qwen2", HfFamily::Qwen2, "qwen2"},
                                 FamilyRow{"qwen3", HfFamily::Qwen3, "qwen3"},
                                 FamilyRow{"qwen3_moe", HfFamily::Qwen3Moe, "qwen3moe"},
                                 FamilyRow{"phi3", HfFamily::Phi3, "phi3"},
                                 FamilyRow{"gemma2", HfFamily::Gemma2, "gemma2"},
                                 FamilyRow{"gemma3_text", HfFamily::Gemma3, "gemma3"}};

// What Gemma 3's own code takes for keys that a nested text_config leaves out.
struct Defaults {
  std::uint64_t heads = 0;  // 0: the key must be there
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t context = 0;
  double rope_theta = 1e4;
  double eps = 1e-6;
};

class ConfigReader {
 public:
  ConfigReader(const JsonValue& top, const JsonValue& text, const FamilyRow& row)
      : top_(top), text_(text) {
    out_.family = row.family;
    out_.architecture = row.architecture;
    if (is_gemma()) {
      defaults_.head_dim = 256;
    }
    if (row.family == HfFamily::Gemma3) {
      defaults_ = {8, 4, 256, 262208, 131072, 1e6, 1e-6};
    }
  }

  Result<HfConfig> read(const std::optional<JsonValue>& quantize_config) {
    BATON_TRY(shape());
    BATON_TRY(activation());
    BATON_TRY(read_rope(text_, context_, defaults_.rope_theta, out_));
    BATON_TRY(windows());
    if (is_gemma()) {
      BATON_TRY(gemma());
    }
    BATON_TRY(experts());
    BATON_TRY(int4(quantize_config));
    BATON_ASSIGN(out_.eos_ids, read_eos_ids(text_));
    if (out_.eos_ids.empty()) {
      BATON_ASSIGN(out_.eos_ids, read_eos_ids(top_));
    }
    return std::move(out_);
  }

 private:
  bool is_gemma() const {
    return out_.family == HfFamily::Gemma2 || out_.family == HfFamily::Gemma3;
  }
  void set(std::string_view key, HfValue value) { out_.set(key, std::move(value)); }
  std::unexpected<Error> bad(std::string_view why) const { return text_.bad(why); }

  // A count of at least 1; `other` 0: it must be there.
  Result<std::uint32_t> count(std::string_view key, std::uint64_t high, std::uint64_t other = 0) {
    if (other == 0) {
      BATON_TRY(text_.at(key));
    }
    BATON_ASSIGN(const auto value, text_.uint_or(key, other, high));
    if (value == 0) {
      return bad(fmt::format("{} is 0", key));
    }
    return static_cast<std::uint32_t>(value);
  }

  Status shape() {
    BATON_ASSIGN(out_.layers, count("num_hidden_layers", kMaxCount));
    BATON_ASSIGN(dim_, count("hidden_size", 1U << 16U));
    BATON_ASSIGN(const auto ffn, count("intermediate_size", 1U << 20U));
    BATON_ASSIGN(out_.heads, count("num_attention_heads", kMaxCount, defaults_.heads));
    BATON_ASSIGN(out_.kv_heads,
                 count("num_key_value_heads",
                       kMaxCount,
                       defaults_.kv_heads != 0 ? defaults_.kv_heads : out_.heads));
    const std::uint64_t usual = defaults_.head_dim != 0 ? defaults_.head_dim : dim_ / out_.heads;
    BATON_ASSIGN(out_.head_dim, count("head_dim", kMaxCount, std::max<std::uint64_t>(usual, 1)));
    BATON_ASSIGN(out_.vocab_size, count("vocab_size", kMaxVocabulary, defaults_.vocabulary));
    BATON_ASSIGN(context_, count("max_position_embeddings", kMaxHfContext, defaults_.context));
    BATON_ASSIGN(const double eps, text_.double_or("rms_norm_eps", defaults_.eps));
    const auto& tie = text_.find("tie_word_embeddings") ? text_ : top_;
    BATON_ASSIGN(out_.tied_output, tie.bool_or("tie_word_embeddings", is_gemma()));
    set("block_count", out_.layers);
    set("embedding_length", dim_);
    set("feed_forward_length", ffn);
    set("attention.head_count", out_.heads);
    set("attention.head_count_kv", out_.kv_heads);
    set("attention.key_length", out_.head_dim);
    set("attention.value_length", out_.head_dim);
    set("attention.layer_norm_rms_epsilon", eps);
    set("context_length", context_);
    set("vocab_size", out_.vocab_size);
    return {};
  }

  Status activation() {
    const std::string_view key =
        text_.find("hidden_activation") ? "hidden_activation" : "hidden_act";
    const std::string_view wanted = is_gemma() ? "gelu_pytorch_tanh" : "silu";
    BATON_ASSIGN(const auto name, text_.string_or(key, wanted));
    if (name != wanted) {
      return bad(fmt::format("{}: only \"{}\" is supported, not {}", key, wanted, quoted(name)));
    }
    return {};
  }

  Status windows() {
    BATON_ASSIGN(const auto window, text_.uint_or("sliding_window", 0, kMaxHfContext));
    BATON_ASSIGN(const bool used, text_.bool_or("use_sliding_window", true));
    const bool per_layer = out_.family == HfFamily::Qwen2 || out_.family == HfFamily::Qwen3 ||
                           out_.family == HfFamily::Qwen3Moe;
    if (!per_layer) {
      set("attention.sliding_window", used ? window : 0);
    } else if (window != 0 && used && window < context_) {
      // Some layers see a window. Inside of it all is seen, as by the pass.
      set("context_length", window);
      out_.note = fmt::format(
          "the context is cut from {} to the {} positions of sliding_window", context_, window);
    }
    return {};
  }

  Status gemma() {
    const auto layer_types = text_.find("layer_types");
    if (out_.family == HfFamily::Gemma3) {
      BATON_ASSIGN(auto pattern, text_.uint_or("sliding_window_pattern", 6, kMaxCount));
      if (layer_types) {
        BATON_ASSIGN(pattern, period_of(*layer_types));
      }
      set("attention.sliding_window_pattern", std::max<std::uint64_t>(pattern, 1));
    }
    BATON_ASSIGN(
        const double cap,
        text_.double_or("attn_logit_softcapping", out_.family == HfFamily::Gemma2 ? 50.0 : 0.0));
    BATON_ASSIGN(
        const double final_cap,
        text_.double_or("final_logit_softcapping", out_.family == HfFamily::Gemma2 ? 30.0 : 0.0));
    set("final_logit_softcapping", final_cap);
    if (out_.family == HfFamily::Gemma2) {
      set("attn_logit_softcapping", cap);
    } else if (cap != 0) {
      return bad("attn_logit_softcapping: not supported with this family");
    }
    // No key says by what queries are scaled: the passes take the width of a head, and in the 27B
    // models the width of the stream over the number of heads.
    BATON_ASSIGN(const double scalar, text_.double_or("query_pre_attn_scalar", 256));
    const std::uint32_t largest = out_.family == HfFamily::Gemma2 ? 46 : 62;
    const std::uint32_t wanted = out_.layers == largest ? dim_ / out_.heads : out_.head_dim;
    if (scalar != wanted) {
      return bad(
          fmt::format("query_pre_attn_scalar: only {} is supported, not {}", wanted, scalar));
    }
    return {};
  }

  // Every n-th layer sees everything and the others a window: n.
  Result<std::uint64_t> period_of(const JsonValue& layer_types) {
    BATON_ASSIGN(const auto list, layer_types.to_array());
    std::vector<bool> full;
    for (const auto item : list) {
      std::string_view name;
      if (item.get(name) != simdjson::SUCCESS ||
          (name != "full_attention" && name != "sliding_attention")) {
        return layer_types.bad("must be full_attention or sliding_attention for each layer");
      }
      full.push_back(name == "full_attention");
    }
    const auto first = std::find(full.begin(), full.end(), true);
    const auto period =
        static_cast<std::size_t>(first - full.begin()) + (first == full.end() ? 0 : 1);
    for (std::size_t i = 0; i < full.size(); ++i) {
      if (full[i] != (period <= full.size() && i % std::max<std::size_t>(period, 1) + 1 == period &&
                      first != full.end())) {
        return layer_types.bad("only a repeated pattern that ends in full_attention is supported");
      }
    }
    // No layer sees everything: a pattern longer than the model.
    return first == full.end() ? std::uint64_t{out_.layers} + 1 : std::uint64_t{period};
  }

  Status experts() {
    if (out_.family == HfFamily::Mixtral) {
      BATON_ASSIGN(out_.experts, count("num_local_experts", kMaxCount));
    } else if (out_.family == HfFamily::Qwen3Moe) {
      BATON_ASSIGN(out_.experts, count("num_experts", kMaxCount));
      BATON_ASSIGN(const auto width, count("moe_intermediate_size", 1U << 20U));
      set("expert_feed_forward_length", width);
      BATON_ASSIGN(const bool normed, text_.bool_or("norm_topk_prob", false));
      set("expert_weights_norm", normed);
      BATON_ASSIGN(const auto step, text_.uint_or("decoder_sparse_step", 1, kMaxCount));
      if (step != 1) {
        return bad("decoder_sparse_step: only 1 is supported");
      }
      if (const auto dense = text_.find("mlp_only_layers")) {
        BATON_ASSIGN(const auto list, dense->to_array());
        if (list.size() != 0) {
          return dense->bad("dense layers among those of experts are not supported");
        }
      }
    } else {
      return {};
    }
    BATON_ASSIGN(const auto used, count("num_experts_per_tok", kMaxCount));
    set("expert_count", out_.experts);
    set("expert_used_count", used);
    return {};
  }

  Status int4(const std::optional<JsonValue>& quantize_config) {
    auto found = text_.find("quantization_config");
    found = found ? found : top_.find("quantization_config");
    found = found ? found : quantize_config;
    if (!found) {
      return {};
    }
    const JsonValue& q = *found;
    BATON_ASSIGN(const auto method, q.string_or("quant_method", "gptq"));
    Int4Scheme scheme;
    if (method == "gptq") {
      BATON_ASSIGN(auto format, q.string_or("checkpoint_format", "gptq"));
      BATON_ASSIGN(format, q.string_or("format", format));
      if (format != "gptq" && format != "gptq_v2") {
        return q.bad(fmt::format("checkpoint_format {} is not supported; known: gptq, gptq_v2",
                                 quoted(format)));
      }
      scheme.zeros_less_one = format == "gptq";
    } else if (method == "awq") {
      scheme.method = Int4Scheme::Method::Awq;
      BATON_ASSIGN(const auto version, q.string_or("version", "gemm"));
      if (version != "gemm" && version != "GEMM") {
        return q.bad(fmt::format("version {} is not supported; known: gemm", quoted(version)));
      }
    } else {
      return q.bad(
          fmt::format("quant_method {} is not supported; known: gptq, awq", quoted(method)));
    }
    BATON_ASSIGN(auto bits, q.uint_or("w_bit", 0, 64));
    BATON_ASSIGN(bits, q.uint_or("bits", bits, 64));
    if (bits != 4) {
      return q.bad(fmt::format("weights of {} bits are not supported, only of 4", bits));
    }
    const auto group = q.find("group_size") ? q.find("group_size") : q.find("q_group_size");
    if (!group) {
      return q.bad("group_size is missing");
    }
    BATON_ASSIGN(const double size, group->to_double());
    if (size != -1 && (size < 32 || size > (1 << 16) || size != static_cast<int>(size) ||
                       static_cast<int>(size) % 32 != 0)) {
      return group->bad(fmt::format("must be a multiple of 32, or -1, is {}", size));
    }
    scheme.group_size = size == -1 ? 0 : static_cast<std::uint64_t>(size);
    out_.int4 = scheme;
    return {};
  }

  const JsonValue& top_;
  const JsonValue& text_;
  Defaults defaults_;
  std::uint32_t dim_ = 0;
  std::uint32_t context_ = 0;
  HfConfig out_;
};

}  // namespace

Result<HfConfig> read_hf_config(const JsonValue& config,
                                const std::optional<JsonValue>& quantize_config) {
  // A model of several kinds of input keeps its language model's settings one level down.
  const auto nested = config.find("text_config");
  const JsonValue& text = nested ? *nested : config;
  BATON_ASSIGN(const auto type, text.at("model_type"));
  BATON_ASSIGN(const auto name, type.to_string());
  std::string known;
  for (const FamilyRow& row : kHfFamilies) {
    if (row.model_type == name) {
      BATON_ASSIGN(auto out, ConfigReader(config, text, row).read(quantize_config));
      out.nested = nested.has_value();
      return out;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.model_type);
  }
  return type.bad(fmt::format("{} is not supported; known: {}", quoted(name), known));
}

Result<std::vector<std::uint64_t>> read_eos_ids(const JsonValue& file) {
  std::vector<std::uint64_t> out;
  const auto value = file.find("eos_token_id");
  if (!value) {
    return out;
  }
  if (!value->is_array()) {
    BATON_ASSIGN(const auto id, value->to_uint(kMaxVocabulary));
    out.push_back(id);
    return out;
  }
  BATON_ASSIGN(const auto list, value->to_array());
  for (const auto item : list) {
    BATON_ASSIGN(const auto id, JsonValue(item, value->place()).to_uint(kMaxVocabulary));
    if (out.size() == kMaxEosIds) {
      return value->bad(fmt::format("more than {} ids", kMaxEosIds));
    }
    out.push_back(id);
  }
  return out;
}

}  // namespace baton::engine
