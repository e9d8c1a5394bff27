// One function reads what all families have; one each adds what is a family's own.
// Sources: Touvron et al. 2023 (llama); Gemma Team 2025, arXiv 2503.19786 (gemma3). llama GGUF
// files hold q and k permuted for interleaved pairs; Gemma's norm weights hold their "+1" already.
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

 private:
  const ModelFile& file_;
  std::string prefix_;
};

constexpr std::uint64_t kMaxWindow = 1U << 24U;

// The scaling that metadata ask for. `factors`: empty, or a divisor for each frequency.
Status scale_frequencies(const KeyReader& keys,
                         std::span<const float> factors,
                         std::vector<double>& frequencies) {
  const auto scaling = keys.file().get_string(keys.key("rope.scaling.type")).value_or("none");
  double scale = 1.0;
  if (scaling == "linear") {
    BATON_ASSIGN(const double factor, keys.positive_or("rope.scaling.factor", 1.0));
    scale = 1.0 / factor;
  } else if (scaling != "none") {
    return fail(ErrorCode::InvalidModel,
                fmt::format("key {}: only \"none\" and \"linear\" are supported",
                            keys.key("rope.scaling.type")));
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] *= scale;
    if (!factors.empty()) {
      frequencies[i] /= static_cast<double>(factors[i]);
    }
  }
  return {};
}

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

// What all families have; layers see everything and share one rotary embedding without scaling.
Result<DecoderSpec> read_common(const KeyReader& keys, kernels::RopeStyle style) {
  DecoderSpec out;
  out.architecture = keys.file().architecture();
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
  BATON_ASSIGN(const double base, keys.positive_or("rope.freq_base", 1e4));
  if (out.heads % out.kv_heads != 0) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format(
            "{} attention heads do not share {} key-value heads evenly", out.heads, out.kv_heads));
  }
  if (value_dim != out.head_dim || rope_dim != out.head_dim || out.head_dim % 2 != 0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("head sizes are not supported: keys {}, values {}, rotated {}",
                            out.head_dim,
                            value_dim,
                            rope_dim));
  }
  out.ropes.push_back({style, rope_frequencies(rope_dim, base)});
  out.attention_scale = 1.0F / std::sqrt(static_cast<float>(out.head_dim));
  return out;
}

Result<DecoderSpec> read_llama(const KeyReader& keys) {
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Interleaved));
  auto& frequencies = out.ropes[0].frequencies;
  BATON_ASSIGN(const auto factors,
               rope_factors(keys.file(), "rope_freqs.weight", frequencies.size()));
  BATON_TRY(scale_frequencies(keys, factors, frequencies));
  return out;
}

// Five of six layers see only a window and have a rotary embedding of their own.
Result<DecoderSpec> read_gemma3(const KeyReader& keys) {
  constexpr std::uint32_t k27bLayers = 62;
  const ModelFile& file = keys.file();
  BATON_ASSIGN(auto out, read_common(keys, kernels::RopeStyle::Halves));
  BATON_TRY(scale_frequencies(keys, {}, out.ropes[0].frequencies));
  const std::uint64_t window = file.get_uint(keys.key("attention.sliding_window")).value_or(0);
  const std::uint64_t pattern =
      file.get_uint(keys.key("attention.sliding_window_pattern")).value_or(6);
  if (window > kMaxWindow || pattern < 1 || pattern > out.layers.size() + 6) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("gemma3.attention: sliding window {} with pattern {} is not possible",
                            window,
                            pattern));
  }
  BATON_ASSIGN(const double local_base, keys.positive_or("rope.freq_base_swa", 1e4));
  out.ropes.push_back({kernels::RopeStyle::Halves, rope_frequencies(out.head_dim, local_base)});
  for (std::size_t layer = 0; window != 0 && layer < out.layers.size(); ++layer) {
    if (layer % pattern != pattern - 1) {
      out.layers[layer] = {static_cast<std::uint32_t>(window), 1};
    }
  }
  if (file.get_float(keys.key("final_logit_softcapping")).value_or(0) != 0) {
    return fail(ErrorCode::InvalidModel,
                "key gemma3.final_logit_softcapping: soft-capped logits are not supported");
  }
  // The 27B model alone scales by its width a head; no key says so.
  const std::uint32_t query_dim =
      out.layers.size() == k27bLayers ? out.dim / out.heads : out.head_dim;
  out.attention_scale = 1.0F / std::sqrt(static_cast<float>(query_dim));
  out.embedding_scale = std::sqrt(static_cast<float>(out.dim));
  out.gate = GateFunction::Gelu;
  out.qk_norm = true;
  out.post_norms = true;
  return out;
}

struct Family {
  std::string_view architecture;
  Result<DecoderSpec> (*read)(const KeyReader&);
};
constexpr std::array kFamilies{Family{"llama", read_llama}, Family{"gemma3", read_gemma3}};

}  // namespace

Result<DecoderSpec> read_gguf_spec(const ModelFile& file) {
  std::string known;
  for (const Family& family : kFamilies) {
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
