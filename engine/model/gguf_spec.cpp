// One function reads what all families have; one each adds what is a family's own.
// Sources: the key names of the GGUF format; Touvron et al. 2023, Grattafiori et al. 2024 (llama);
// Jiang et al. 2023, 2024 (mistral, mixtral); Qwen Team 2024, 2025 (qwen2, qwen3, qwen3moe); Abdin
// et al. 2024 (phi3); Gemma Team 2024, 2025 (gemma2, gemma3). llama files hold q and k permuted for
// interleaved pairs; Gemma's norm weights hold their "+1" already.
#include "engine/model/gguf_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

namespace baton::engine {
namespace {

class KeyReader {
 public:
  explicit KeyReader(const ModelFile& file) : file_(file), prefix_(file.architecture()) {}

  const ModelFile& file() const { return file_; }
  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  Result<std::uint32_t> count(std::string_view name, std::uint64_t high) const {
    const auto value = file_.get_uint(key(name));
    if (!value || *value < 1 || *value > high) {
      return fail(ErrorCode::InvalidModel,
                  value ? fmt::format("key {}: must be 1 to {}, is {}", key(name), high, *value)
                        : fmt::format("key {}: missing or not an integer", key(name)));
    }
    return static_cast<std::uint32_t>(*value);
  }
  Result<std::uint32_t> count_or(std::string_view name,
                                 std::uint64_t high,
                                 std::uint32_t other) const {
    return file_.get_uint(key(name)) ? count(name, high) : Result<std::uint32_t>(other);
  }
  Result<double> positive_or(std::string_view name, double other) const {
    const double value = file_.get_float(key(name)).value_or(other);
    if (!std::isfinite(value) || value <= 0 || value > 1e12) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("key {}: must be a positive number, is {}", key(name), value));
    }
    return value;
  }
  // For what is switched off by 0.
  Result<float> cap_or(std::string_view name, double other) const {
    const double value = file_.get_float(key(name)).value_or(other);
    if (!(value >= 0 && value <= 1e6)) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("key {}: must be 0 to 1e6, is {}", key(name), value));
    }
    return static_cast<float>(value);
  }

 private:
  const ModelFile& file_;
  std::string prefix_;
};

constexpr std::uint64_t kMaxWindow = 1U << 24U;
constexpr std::uint32_t kMaxExperts = 1024;
constexpr std::uint64_t kSoftmaxGating = 1;

// The scaling that metadata ask for, as a change of frequencies. Files that leave the type out mean
// "linear".
class RopeScaling {
 public:
  static Result<RopeScaling> read(const KeyReader& keys, double base, std::uint32_t context) {
    RopeScaling out;
    const std::string type_key = keys.key("rope.scaling.type");
    const auto type = keys.file().get_string(type_key).value_or("linear");
    BATON_ASSIGN(out.original_context_,
                 keys.count_or("rope.scaling.original_context_length", 1U << 24U, context));
    BATON_ASSIGN(out.magnitude_, keys.positive_or("rope.scaling.attn_factor", 1.0));
    if (type == "none") {
      return out;
    }
    out.is_yarn_ = type == "yarn";
    if (type != "linear" && type != "longrope" && !out.is_yarn_) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format("key {}: only \"none\", \"linear\", \"yarn\" and \"longrope\" are supported",
                      type_key));
    }
    BATON_ASSIGN(const double older, keys.positive_or("rope.scale_linear", 1.0));
    BATON_ASSIGN(out.yarn_.factor, keys.positive_or("rope.scaling.factor", older));
    if (out.is_yarn_) {
      out.yarn_.base = base;
      out.yarn_.original_context = out.original_context_;
      BATON_ASSIGN(out.yarn_.fast, keys.positive_or("rope.scaling.yarn_beta_fast", 32.0));
      BATON_ASSIGN(out.yarn_.slow, keys.positive_or("rope.scaling.yarn_beta_slow", 1.0));
      // A file may ask for the sharpness to be divided by that of a weaker scaling.
      BATON_ASSIGN(const float weaker, keys.cap_or("rope.scaling.yarn_log_multiplier", 0.0));
      const double full = yarn_magnitude(out.yarn_.factor);
      out.magnitude_ *= full / (1.0 + (full - 1.0) * static_cast<double>(weaker));
    }
    return out;
  }

  // `factors`: empty, or a divisor for each frequency.
  std::vector<double> apply(std::vector<double> frequencies, std::span<const float> factors) const {
    if (is_yarn_) {
      divide(frequencies, factors);
      scale_yarn(yarn_, frequencies);
      return frequencies;
    }
    for (double& frequency : frequencies) {
      frequency *= 1.0 / yarn_.factor;
    }
    divide(frequencies, factors);
    return frequencies;
  }

  std::uint32_t original_context() const { return original_context_; }
  double magnitude() const { return magnitude_; }

 private:
  static void divide(std::vector<double>& frequencies, std::span<const float> factors) {
    for (std::size_t i = 0; i < factors.size(); ++i) {
      frequencies[i] /= static_cast<double>(factors[i]);
    }
  }

  bool is_yarn_ = false;
  YarnScaling yarn_;
  std::uint32_t original_context_ = 0;
  double magnitude_ = 1.0;
};

// Divisors of frequencies; an absent tensor gives none.
Result<std::vector<float>> rope_factors(const ModelFile& file,
                                        std::string_view name,
                                        std::size_t size) {
  if (!file.has_tensor(name)) {
    return std::vector<float>{};
  }
  BATON_ASSIGN(const auto view, file.tensor(name));
  if (view.rows != 1 || view.cols != size || view.dtype != kernels::DType::F32) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("tensor {}: {} rows of {} {}, expected {} F32 values",
                            name,
                            view.rows,
                            view.cols,
                            kernels::info(view.dtype).name,
                            size));
  }
  std::vector<float> out(size);
  std::memcpy(out.data(), view.data.data(), size * sizeof(float));
  for (const float factor : out) {
    if (!std::isfinite(factor) || factor <= 0) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tensor {}: a factor is not positive", name));
    }
  }
  return out;
}

// The rotary embedding of layers that see everything. Factors: Llama 3's, or longrope's two sets,
// of which the context chooses one.
Result<RopeSpec> read_rope(const KeyReader& keys,
                           kernels::RopeStyle style,
                           std::uint32_t dimensions,
                           std::uint32_t context) {
  const ModelFile& file = keys.file();
  BATON_ASSIGN(const double base, keys.positive_or("rope.freq_base", 1e4));
  if (base <= 1.0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("key {}: must be above 1", keys.key("rope.freq_base")));
  }
  BATON_ASSIGN(const auto scaling, RopeScaling::read(keys, base, context));
  const std::size_t half = dimensions / 2;
  BATON_ASSIGN(const auto plain, rope_factors(file, "rope_freqs.weight", half));
  BATON_ASSIGN(const auto near, rope_factors(file, "rope_factors_short.weight", half));
  BATON_ASSIGN(const auto far, rope_factors(file, "rope_factors_long.weight", half));
  if (near.empty() != far.empty() || (!near.empty() && !plain.empty())) {
    return fail(ErrorCode::InvalidModel,
                "tensors rope_factors_short.weight and rope_factors_long.weight: both or neither, "
                "and not beside rope_freqs.weight");
  }
  const std::vector<double> frequencies = rope_frequencies(dimensions, base);
  RopeSpec out;
  out.style = style;
  out.magnitude = scaling.magnitude();
  out.frequencies = scaling.apply(frequencies, near.empty() ? plain : near);
  if (!far.empty()) {
    out.long_frequencies = scaling.apply(frequencies, far);
    out.long_after = scaling.original_context();
  }
  return out;
}

Status refuse(const KeyReader& keys, std::string_view name, std::string_view why) {
  return fail(ErrorCode::InvalidModel, fmt::format("key {}: {}", keys.key(name), why));
}

// A mixture of experts, if the file says so.
Status read_experts(const KeyReader& keys, bool allowed, DecoderSpec& out) {
  const ModelFile& file = keys.file();
  if (file.get_uint(keys.key("expert_count")).value_or(0) == 0) {
    return {};
  }
  if (!allowed) {
    return refuse(keys, "expert_count", "experts are not supported in this architecture");
  }
  BATON_ASSIGN(out.experts.count, keys.count("expert_count", kMaxExperts));
  BATON_ASSIGN(out.experts.used, keys.count("expert_used_count", out.experts.count));
  BATON_ASSIGN(out.ffn, keys.count_or("expert_feed_forward_length", 1U << 20U, out.ffn));
  out.experts.renormalise = file.get_bool(keys.key("expert_weights_norm")).value_or(true);
  BATON_ASSIGN(const float scale, keys.cap_or("expert_weights_scale", 1.0));
  if (scale != 0.0F && scale != 1.0F) {
    return refuse(keys, "expert_weights_scale", "scaled expert weights are not supported");
  }
  if (file.get_uint(keys.key("expert_gating_func")).value_or(kSoftmaxGating) != kSoftmaxGating) {
    return refuse(keys, "expert_gating_func", "only softmax routers (1) are supported");
  }
  for (const auto* name :
       {"expert_shared_count", "expert_shared_feed_forward_length", "leading_dense_block_count"}) {
    if (file.get_uint(keys.key(name)).value_or(0) != 0) {
      return refuse(keys, name, "only layers with experts alone are supported");
    }
  }
  return {};
}

// What all families have. Layers share one rotary embedding and one window, if the file has one.
Result<DecoderSpec> read_common(const KeyReader& keys,
                                kernels::RopeStyle style,
                                bool experts_allowed = false) {
  const ModelFile& file = keys.file();
  DecoderSpec out;
  out.architecture = file.architecture();
  BATON_ASSIGN(const auto layers, keys.count("block_count", 1024));
  out.layers.resize(layers);
  BATON_ASSIGN(out.dim, keys.count("embedding_length", 1U << 16U));
  BATON_ASSIGN(out.ffn, keys.count("feed_forward_length", 1U << 20U));
  BATON_ASSIGN(out.heads, keys.count("attention.head_count", 1024));
  BATON_ASSIGN(out.kv_heads, keys.count_or("attention.head_count_kv", 1024, out.heads));
  BATON_ASSIGN(out.head_dim,
               keys.count_or("attention.key_length", 1024, std::max(1U, out.dim / out.heads)));
  BATON_ASSIGN(const auto value_dim, keys.count_or("attention.value_length", 1024, out.head_dim));
  BATON_ASSIGN(const auto rope_dim, keys.count_or("rope.dimension_count", 1024, out.head_dim));
  BATON_ASSIGN(out.context, keys.count("context_length", 1U << 24U));
  BATON_ASSIGN(const double eps, keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5));
  out.eps = static_cast<float>(eps);
  if (out.heads % out.kv_heads != 0) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format(
            "{} attention heads do not share {} key-value heads evenly", out.heads, out.kv_heads));
  }
  const bool partly = rope_dim < out.head_dim && style == kernels::RopeStyle::Halves;
  if (value_dim != out.head_dim || (rope_dim != out.head_dim && !partly) || rope_dim % 2 != 0 ||
      out.head_dim % 2 != 0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("head sizes are not supported: keys {}, values {}, rotated {}",
                            out.head_dim,
                            value_dim,
                            rope_dim));
  }
  const std::uint64_t window = file.get_uint(keys.key("attention.sliding_window")).value_or(0);
  if (window > kMaxWindow) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format("key {}: {} is not possible", keys.key("attention.sliding_window"), window));
  }
  for (LayerSpec& layer : out.layers) {
    layer.window = static_cast<std::uint32_t>(window);
  }
  BATON_ASSIGN(auto rope, read_rope(keys, style, rope_dim, out.context));
  out.ropes.push_back(std::move(rope));
  out.attention_scale = 1.0F / std::sqrt(static_cast<float>(out.head_dim));
  BATON_TRY(read_experts(keys, experts_allowed, out));
  return out;
}

// Mistral and Mixtral are files of this architecture too.
Result<DecoderSpec> read_llama(const KeyReader& keys) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Interleaved, true));
  out.qkv_bias = keys.file().has_tensor("blk.0.attn_q.bias");
  out.output_bias = keys.file().has_tensor("blk.0.attn_output.bias");
  return out;
}

Result<DecoderSpec> read_qwen2(const KeyReader& keys) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Halves));
  out.qkv_bias = true;
  return out;
}

Result<DecoderSpec> read_qwen3(const KeyReader& keys) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Halves));
  out.qk_norm = true;
  return out;
}

Result<DecoderSpec> read_qwen3moe(const KeyReader& keys) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Halves, true));
  if (out.experts.count == 0) {
    BATON_TRY(refuse(keys, "expert_count", "missing or 0"));
  }
  out.qk_norm = true;
  return out;
}

Result<DecoderSpec> read_phi3(const KeyReader& keys) {
  return read_common(keys, kernels::RopeStyle::Halves);
}

// Leaves a window only to layers that are not each `pattern`th; these see everything.
Status alternate_windows(const KeyReader& keys,
                         std::uint32_t usual_pattern,
                         std::uint32_t local_rope,
                         DecoderSpec& out) {
  const std::uint64_t pattern =
      keys.file().get_uint(keys.key("attention.sliding_window_pattern")).value_or(usual_pattern);
  if (pattern < 1 || pattern > out.layers.size() + usual_pattern) {
    return refuse(
        keys, "attention.sliding_window_pattern", fmt::format("{} is not possible", pattern));
  }
  for (std::size_t layer = 0; layer < out.layers.size(); ++layer) {
    LayerSpec& spec = out.layers[layer];
    if (layer % pattern == pattern - 1) {
      spec.window = 0;
    } else if (spec.window != 0) {
      spec.rope = local_rope;
    }
  }
  return {};
}

// What both Gemmas have. `widest`: the number of layers of the one size that scales attention by
// its width a head; no key says so.
Result<DecoderSpec> read_gemma(const KeyReader& keys, std::uint32_t widest) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Halves));
  if (out.layers.size() == widest) {
    out.attention_scale = 1.0F / std::sqrt(static_cast<float>(out.dim / out.heads));
  }
  out.embedding_scale = std::sqrt(static_cast<float>(out.dim));
  out.gate = GateFunction::Gelu;
  out.post_norms = true;
  return out;
}

// Every other layer sees only a window; scores and logits are bent below a cap.
Result<DecoderSpec> read_gemma2(const KeyReader& keys) {
  constexpr std::uint32_t k27bLayers = 46;
  constexpr std::uint32_t kUsualWindow = 4096;
  BATON_ASSIGN(auto out, read_gemma(keys, k27bLayers));
  if (!keys.file().get_uint(keys.key("attention.sliding_window"))) {
    for (LayerSpec& layer : out.layers) {
      layer.window = kUsualWindow;
    }
  }
  BATON_TRY(alternate_windows(keys, 2, 0, out));
  BATON_ASSIGN(out.attention_softcap, keys.cap_or("attn_logit_softcapping", 50.0));
  BATON_ASSIGN(out.logit_softcap, keys.cap_or("final_logit_softcapping", 30.0));
  return out;
}

// Five of six layers see only a window and have a rotary embedding of their own.
Result<DecoderSpec> read_gemma3(const KeyReader& keys) {
  constexpr std::uint32_t k27bLayers = 62;
  BATON_ASSIGN(auto out, read_gemma(keys, k27bLayers));
  BATON_ASSIGN(const double local_base, keys.positive_or("rope.freq_base_swa", 1e4));
  const auto dimensions = static_cast<std::uint32_t>(2 * out.ropes[0].frequencies.size());
  RopeSpec local;
  local.style = kernels::RopeStyle::Halves;
  local.frequencies = rope_frequencies(dimensions, local_base);
  out.ropes.push_back(std::move(local));
  BATON_TRY(alternate_windows(keys, 6, 1, out));
  BATON_ASSIGN(out.logit_softcap, keys.cap_or("final_logit_softcapping", 0.0));
  out.qk_norm = true;
  return out;
}

struct Family {
  std::string_view architecture;
  Result<DecoderSpec> (*read)(const KeyReader&);
};
constexpr std::array kGgufFamilies{Family{"llama", read_llama},
                                   Family{"qwen2", read_qwen2},
                                   Family{"qwen3", read_qwen3},
                                   Family{"qwen3moe", read_qwen3moe},
                                   Family{"phi3", read_phi3},
                                   Family{"gemma2", read_gemma2},
                                   Family{"gemma3", read_gemma3}};

}  // namespace

Result<DecoderSpec> read_gguf_spec(const ModelFile& file) {
  std::string known;
  for (const Family& family : kGgufFamilies) {
    if (family.architecture == file.architecture()) {
      return family.read(KeyReader(file));
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return fail(ErrorCode::InvalidModel,
              fmt::format("model architecture \"{}\" is not supported; known: {}",
                          file.architecture().substr(0, 64),
                          known));
}

}  // namespace baton::engine
