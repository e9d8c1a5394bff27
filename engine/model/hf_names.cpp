#include "engine/model/hf_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace baton::engine {
namespace {

using Mask = unsigned;
constexpr Mask of(HfFamily family) {
  return 1U << static_cast<unsigned>(family);
}
constexpr Mask kMixtral = of(HfFamily::Mixtral);
constexpr Mask kQwen3Moe = of(HfFamily::Qwen3Moe);
constexpr Mask kPhi3 = of(HfFamily::Phi3);
constexpr Mask kGemma = of(HfFamily::Gemma2) | of(HfFamily::Gemma3);
constexpr Mask kInterleaved = of(HfFamily::Llama) | kMixtral;
constexpr Mask kAll = ~0U;
constexpr Mask kSplit = kAll & ~kPhi3;  // q, k, v apart, and gate and up
constexpr Mask kDense = kSplit & ~(kMixtral | kQwen3Moe);
constexpr Mask kHeadNorms = of(HfFamily::Qwen3) | kQwen3Moe | of(HfFamily::Gemma3);

enum class Kind : std::uint8_t { Matrix, Norm, QueryHeads, KeyHeads, Expert };

struct LayerRow {
  std::string_view gguf;  // after "blk.<layer>."
  std::string_view hf;    // after "model.layers.<layer>."; {} is an expert's number
  Mask families;
  Kind kind = Kind::Matrix;
};

constexpr std::array kLayerRows{
    LayerRow{"attn_norm", "input_layernorm", kAll, Kind::Norm},
    LayerRow{"attn_q", "self_attn.q_proj", kSplit, Kind::QueryHeads},
    LayerRow{"attn_k", "self_attn.k_proj", kSplit, Kind::KeyHeads},
    LayerRow{"attn_v", "self_attn.v_proj", kSplit},
    LayerRow{"attn_qkv", "self_attn.qkv_proj", kPhi3},
    LayerRow{"attn_output", "self_attn.o_proj", kAll},
    LayerRow{"attn_q_norm", "self_attn.q_norm", kHeadNorms, Kind::Norm},
    LayerRow{"attn_k_norm", "self_attn.k_norm", kHeadNorms, Kind::Norm},
    LayerRow{"ffn_norm", "post_attention_layernorm", kAll & ~kGemma, Kind::Norm},
    LayerRow{"post_attention_norm", "post_attention_layernorm", kGemma, Kind::Norm},
    LayerRow{"ffn_norm", "pre_feedforward_layernorm", kGemma, Kind::Norm},
    LayerRow{"post_ffw_norm", "post_feedforward_layernorm", kGemma, Kind::Norm},
    LayerRow{"ffn_gate", "mlp.gate_proj", kDense},
    LayerRow{"ffn_up", "mlp.up_proj", kDense},
    LayerRow{"ffn_up", "mlp.gate_up_proj", kPhi3},
    LayerRow{"ffn_down", "mlp.down_proj", kDense | kPhi3},
    LayerRow{"ffn_gate_inp", "block_sparse_moe.gate", kMixtral},
    LayerRow{"ffn_gate", "block_sparse_moe.experts.{}.w1", kMixtral, Kind::Expert},
    LayerRow{"ffn_up", "block_sparse_moe.experts.{}.w3", kMixtral, Kind::Expert},
    LayerRow{"ffn_down", "block_sparse_moe.experts.{}.w2", kMixtral, Kind::Expert},
    LayerRow{"ffn_gate_inp", "mlp.gate", kQwen3Moe},
    LayerRow{"ffn_gate", "mlp.experts.{}.gate_proj", kQwen3Moe, Kind::Expert},
    LayerRow{"ffn_up", "mlp.experts.{}.up_proj", kQwen3Moe, Kind::Expert},
    LayerRow{"ffn_down", "mlp.experts.{}.down_proj", kQwen3Moe, Kind::Expert}};

struct TopRow {
  std::string_view gguf;
  std::string_view hf;
  Kind kind;
};
constexpr std::array kTopRows{TopRow{"token_embd", "model.embed_tokens", Kind::Matrix},
                              TopRow{"output_norm", "model.norm", Kind::Norm},
                              TopRow{"output", "lm_head", Kind::Matrix}};

std::string layer_name(std::uint32_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

}  // namespace

HfNames::HfNames(const HfConfig& config)
    : family_(config.family),
      layers_(config.layers),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      experts_(config.experts) {
  for (const TopRow& row : kTopRows) {
    known_.emplace(row.hf);
  }
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (const LayerRow& row : kLayerRows) {
      if ((row.families & of(family_)) == 0) {
        continue;
      }
      const std::string name = layer_name(layer, row.hf);
      if (row.kind != Kind::Expert) {
        known_.insert(name);
        continue;
      }
      for (std::uint32_t expert = 0; expert < experts_; ++expert) {
        known_.insert(fmt::format(fmt::runtime(name), expert));
      }
    }
  }
}

std::optional<HfSource> HfNames::source_of(std::string_view gguf_name) const {
  const std::size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view what = gguf_name.substr(0, dot);
  HfSource out;
  out.part = gguf_name.substr(dot + 1) == "bias" ? "bias" : "weight";
  if (out.part != gguf_name.substr(dot + 1)) {
    return std::nullopt;
  }
  const bool gemma = (of(family_) & kGemma) != 0;
  for (const TopRow& row : kTopRows) {
    if (row.gguf == what) {
      out.base = row.hf;
      out.add_one = gemma && row.kind == Kind::Norm;
      return out;
    }
  }
  std::uint32_t layer = 0;
  if (!what.starts_with("blk.")) {
    return std::nullopt;
  }
  what.remove_prefix(4);
  const auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), layer);
  const auto used = static_cast<std::size_t>(end - what.data());
  if (error != std::errc{} || layer >= layers_ || used == what.size() || what[used] != '.') {
    return std::nullopt;
  }
  what.remove_prefix(used + 1);
  std::uint32_t expert = 0;
  const std::size_t number = what.rfind('.');
  const bool of_expert = number != std::string_view::npos;
  if (of_expert) {
    const auto [last, wrong] =
        std::from_chars(what.data() + number + 1, what.data() + what.size(), expert);
    if (wrong != std::errc{} || last != what.data() + what.size() || expert >= experts_) {
      return std::nullopt;
    }
    what = what.substr(0, number);
  }
  for (const LayerRow& row : kLayerRows) {
    if (row.gguf != what || (row.families & of(family_)) == 0 ||
        (row.kind == Kind::Expert) != of_expert) {
      continue;
    }
    out.base = layer_name(layer, row.hf);
    if (of_expert) {
      out.base = fmt::format(fmt::runtime(out.base), expert);
    }
    out.add_one = gemma && row.kind == Kind::Norm;
    if ((of(family_) & kInterleaved) != 0) {
      out.heads = row.kind == Kind::QueryHeads ? heads_
                  : row.kind == Kind::KeyHeads ? kv_heads_
                                               : 0;
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace baton::engine
