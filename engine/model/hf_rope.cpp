#include "engine/model/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/base/fixed_math.h"
#include "engine/model/gguf.h"

namespace baton::engine {
namespace {

constexpr std::size_t kMaxFactors = 1024;

class RopeReader {
 public:
  RopeReader(const JsonValue& text, std::uint32_t context, HfConfig& out)
      : text_(text), context_(context), out_(out) {}

  Status read(double theta) {
    // Newer files keep all of it in rope_parameters; Gemma 3's have one for each kind of layer.
    auto parameters = text_.find("rope_parameters");
    auto scaling = text_.find("rope_scaling");
    double base = theta;
    double local_base = 1e4;
    if (parameters && parameters->find("full_attention")) {
      if (const auto local = parameters->find("sliding_attention")) {
        BATON_ASSIGN(local_base, local->double_or("rope_theta", local_base));
      }
      parameters = parameters->find("full_attention");
    }
    if (parameters) {
      BATON_ASSIGN(base, parameters->double_or("rope_theta", base));
      scaling = parameters;
    }
    BATON_ASSIGN(base, text_.double_or("rope_theta", base));
    out_.set("rope.freq_base", base);
    if (out_.family == HfFamily::Gemma3) {
      BATON_ASSIGN(local_base, text_.double_or("rope_local_base_freq", local_base));
      out_.set("rope.freq_base_swa", local_base);
    }
    BATON_ASSIGN(const double share, text_.double_or("partial_rotary_factor", 1.0));
    if (share <= 0 || share > 1) {
      return text_.bad(
          fmt::format("partial_rotary_factor: must be above 0 and at most 1, is {}", share));
    }
    out_.set("rope.dimension_count", static_cast<std::uint64_t>(share * out_.head_dim));
    BATON_ASSIGN(const bool interleaved, text_.bool_or("rope_interleaved", false));
    if (interleaved) {
      return text_.bad("rope_interleaved: only false is supported");
    }
    return scaling ? rope_scaling(*scaling, base) : Status{};
  }

 private:
  Status rope_scaling(const JsonValue& scaling, double base) {
    BATON_ASSIGN(auto type, scaling.string_or("type", "default"));
    BATON_ASSIGN(type, scaling.string_or("rope_type", type));
    if (type == "default") {
      return {};
    }
    if (type == "linear") {
      out_.set("rope.scaling.type", std::string("linear"));
      return set_number(scaling, "factor", "rope.scaling.factor");
    }
    if (type == "yarn") {
      return yarn(scaling);
    }
    if (type == "llama3") {
      return llama3_factors(scaling, base);
    }
    if (type == "longrope" || type == "su") {
      return longrope(scaling);
    }
    return scaling.bad(
        fmt::format("rope type {} is not supported; known: default, linear, yarn, llama3, longrope",
                    quoted(type)));
  }

  Result<double> positive(const JsonValue& from, std::string_view key) const {
    BATON_ASSIGN(const auto value, from.at(key));
    BATON_ASSIGN(const double number, value.to_double());
    if (number < 1e-6 || number > 1e12) {
      return value.bad("must be positive, 1e-6 to 1e12");
    }
    return number;
  }
  Status set_number(const JsonValue& from, std::string_view key, std::string_view as) {
    BATON_ASSIGN(const double number, positive(from, key));
    out_.set(as, number);
    return {};
  }
  // The context that the model was trained on before it was stretched.
  Result<std::uint64_t> original_context(const JsonValue& scaling) const {
    BATON_ASSIGN(const auto own,
                 text_.uint_or("original_max_position_embeddings", context_, kMaxHfContext));
    BATON_ASSIGN(const auto original,
                 scaling.uint_or("original_max_position_embeddings", own, kMaxHfContext));
    if (original < 2) {
      return scaling.bad("original_max_position_embeddings must be at least 2");
    }
    return original;
  }

  Status yarn(const JsonValue& scaling) {
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      if (scaling.find(key)) {
        return scaling.bad(fmt::format("{} is not supported", key));
      }
    }
    BATON_ASSIGN(const bool truncate, scaling.bool_or("truncate", true));
    if (!truncate) {
      return scaling.bad("truncate: only true is supported");
    }
    out_.set("rope.scaling.type", std::string("yarn"));
    BATON_ASSIGN(const double factor, positive(scaling, "factor"));
    out_.set("rope.scaling.factor", factor);
    BATON_ASSIGN(const auto original, original_context(scaling));
    out_.set("rope.scaling.original_context_length", original);
    for (const auto& [key, as] : {std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                  std::pair{"beta_slow", "rope.scaling.yarn_beta_slow"}}) {
      if (scaling.find(key)) {
        BATON_TRY(set_number(scaling, key, as));
      }
    }
    if (scaling.find("attention_factor")) {
      // The pass multiplies its own factor in.
      BATON_ASSIGN(const double wanted, positive(scaling, "attention_factor"));
      const double own = factor <= 1 ? 1.0 : 0.1 * fixed_log(factor) + 1.0;
      out_.set("rope.scaling.attn_factor", wanted / own);
    }
    return {};
  }

  Status longrope(const JsonValue& scaling) {
    out_.set("rope.scaling.type", std::string("longrope"));
    for (const auto& [key, tensor] : {std::pair{"short_factor", "rope_factors_short.weight"},
                                      std::pair{"long_factor", "rope_factors_long.weight"}}) {
      BATON_ASSIGN(const auto value, scaling.at(key));
      BATON_ASSIGN(const auto list, value.to_array());
      auto& factors = out_.rope_factors[tensor];
      for (const auto item : list) {
        BATON_ASSIGN(const double factor, JsonValue(item, value.place()).to_double());
        if (factor < 1e-6 || factor > 1e12 || factors.size() == kMaxFactors) {
          return value.bad("must be positive numbers, one for each frequency");
        }
        factors.push_back(static_cast<float>(factor));
      }
    }
    BATON_ASSIGN(const auto original, original_context(scaling));
    out_.set("rope.scaling.original_context_length", original);
    const double stretch = static_cast<double>(context_) / static_cast<double>(original);
    double attention = 1.0;
    if (scaling.find("attention_factor")) {
      BATON_ASSIGN(attention, positive(scaling, "attention_factor"));
    } else if (stretch > 1) {
      attention = std::sqrt(1.0 + fixed_log(stretch) / fixed_log(static_cast<double>(original)));
    }
    out_.set("rope.scaling.attn_factor", attention);
    return {};
  }

  // Frequencies whose waves are long against the original context are slowed by `factor`, short
  // ones are kept, and between the two it goes over smoothly. Source: Llama 3.1.
  Status llama3_factors(const JsonValue& scaling, double base) {
    BATON_ASSIGN(const double factor, positive(scaling, "factor"));
    BATON_ASSIGN(const double low, positive(scaling, "low_freq_factor"));
    BATON_ASSIGN(const double high, positive(scaling, "high_freq_factor"));
    BATON_ASSIGN(const double original, positive(scaling, "original_max_position_embeddings"));
    if (high <= low || base <= 0) {
      return scaling.bad("high_freq_factor must be above low_freq_factor, and rope_theta above 0");
    }
    const double log_base = fixed_log(base);
    auto& factors = out_.rope_factors["rope_freqs.weight"];
    for (std::uint32_t i = 0; i < out_.head_dim / 2; ++i) {
      const double exponent = 2.0 * i / out_.head_dim;
      const double wavelength = 2 * std::numbers::pi * fixed_exp(exponent * log_base);
      const double smooth = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
      factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
    return {};
  }

  const JsonValue& text_;
  const std::uint32_t context_;
  HfConfig& out_;
};

}  // namespace

Status read_rope(const JsonValue& text, std::uint32_t context, double theta, HfConfig& out) {
  return RopeReader(text, context, out).read(theta);
}

}  // namespace baton::engine
