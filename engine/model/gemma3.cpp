// The Gemma 3 family: like llama, but the embedding is scaled by sqrt(dim), queries and keys are
// normed per head, each block's two outputs are normed before they are added, the gate is GELU, and
// five of six layers see only a window, with a rotary base of their own. GGUF norm weights hold
// their "+1" already. Source: Gemma Team 2025, arXiv 2503.19786.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/model/parts.h"

namespace baton::engine {
namespace {

using kernels::AttentionParams;
using kernels::AttentionSlice;
using kernels::Backend;
using kernels::MatmulOut;
using kernels::PackedMatrix;

struct Gemma3Layer {
  std::vector<float> attn_norm;            // [dim]
  std::unique_ptr<PackedMatrix> q, k, v;   // [q_dim | kv_dim][dim]
  std::vector<float> q_norm, k_norm;       // [head_dim]
  std::unique_ptr<PackedMatrix> o;         // [dim][q_dim]
  std::vector<float> post_attn_norm;       // [dim]
  std::vector<float> ffn_norm;             // [dim]
  std::unique_ptr<PackedMatrix> gate, up;  // [ffn][dim]
  std::unique_ptr<PackedMatrix> down;      // [dim][ffn]
  std::vector<float> post_ffn_norm;        // [dim]
};

// What Gemma has beside the common hyperparameters.
struct Gemma3Settings {
  std::uint32_t window = 0;      // of local layers; 0: every layer is global
  std::uint32_t pattern = 6;     // every 6th layer is global
  double local_rope_base = 1e4;  // files leave the key out
  float attention_scale = 0.0F;

  bool is_global(std::uint32_t layer) const {
    return window == 0 || layer % pattern == pattern - 1;
  }
};

class Gemma3 final : public ForwardPass {
 public:
  Gemma3(Backend& backend,
         const Hyperparameters& hyper,
         const Gemma3Settings& settings,
         const PackedMatrix& embedding,
         std::vector<Gemma3Layer> layers,
         std::size_t max_rows)
      : backend_(backend),
        hyper_(hyper),
        settings_(settings),
        embedding_(embedding),
        layers_(std::move(layers)),
        global_rope_(hyper.head_dim, hyper.rope_base, 1.0 / hyper.rope_factor, {}, max_rows),
        local_rope_(hyper.head_dim, settings.local_rope_base, 1.0, {}, max_rows),
        x_(max_rows * hyper.dim),
        h_(max_rows * hyper.dim),
        q_(max_rows * hyper.q_dim()),
        k_(max_rows * hyper.kv_dim()),
        v_(max_rows * hyper.kv_dim()),
        attended_(max_rows * hyper.q_dim()),
        gate_(max_rows * hyper.ffn),
        up_(max_rows * hyper.ffn) {}

  const float* run(const StepRows& rows,
                   const KvArenaView& arena,
                   const LayerDone& layer_done) override {
    const Hyperparameters& p = hyper_;
    std::size_t m = rows.size();
    std::span<const AttentionSlice> slices = rows.slices();
    float* const x = x_.data();  // the residual stream
    float* const h = h_.data();  // a block's input, then its output
    float* const q = q_.data();
    float* const k = k_.data();
    float* const v = v_.data();
    const auto global_angles = global_rope_.table_for(rows.positions());
    const auto local_angles = local_rope_.table_for(rows.positions());
    backend_.embed(embedding_, rows.ids(), std::sqrt(static_cast<float>(p.dim)), x);
    for (std::uint32_t layer = 0; layer < p.layers; ++layer) {
      const Gemma3Layer& w = layers_[layer];
      const bool global = settings_.is_global(layer);
      const AttentionParams attention{.layer = layer,
                                      .heads = p.heads,
                                      .kv_heads = p.kv_heads,
                                      .head_dim = p.head_dim,
                                      .scale = settings_.attention_scale,
                                      .window = global ? 0 : settings_.window};
      const auto norm_and_rotate = [&](float* heads, std::size_t count, const float* norm) {
        backend_.rms_norm(heads, m * count, p.head_dim, norm, p.eps, heads);
        backend_.rope(heads,
                      m,
                      count * p.head_dim,
                      count,
                      p.head_dim,
                      rows.row_numbers(),
                      global ? global_angles : local_angles,
                      kernels::RopeStyle::Halves);
      };
      backend_.rms_norm(x, m, p.dim, w.attn_norm.data(), p.eps, h);
      backend_.matmul(
          h,
          m,
          std::array{MatmulOut{w.q.get(), q}, MatmulOut{w.k.get(), k}, MatmulOut{w.v.get(), v}});
      norm_and_rotate(q, p.heads, w.q_norm.data());
      norm_and_rotate(k, p.kv_heads, w.k_norm.data());
      backend_.write_kv(arena, attention, slices, k, v, p.kv_dim());
      if (layer_done) {
        layer_done(layer);
      }
      if (layer + 1 == p.layers) {  // all that remains concerns the wanted rows
        slices = rows.wanted_slices();
        m = rows.wanted().size();
        if (m == 0) {
          break;
        }
        keep_rows(rows.wanted(), x, p.dim);
        keep_rows(rows.wanted(), q, p.q_dim());
      }
      backend_.attention(arena, attention, slices, q, p.q_dim(), attended_.data());
      backend_.matmul(attended_.data(), m, std::array{MatmulOut{w.o.get(), h}});
      backend_.rms_norm(h, m, p.dim, w.post_attn_norm.data(), p.eps, h);
      backend_.add(x, h, m * p.dim);

      backend_.rms_norm(x, m, p.dim, w.ffn_norm.data(), p.eps, h);
      float* const gate = gate_.data();
      float* const up = up_.data();
      backend_.matmul(h, m, std::array{MatmulOut{w.gate.get(), gate}, MatmulOut{w.up.get(), up}});
      backend_.gelu_mul(gate, up, m, p.ffn, p.ffn, gate);
      backend_.matmul(gate, m, std::array{MatmulOut{w.down.get(), h}});
      backend_.rms_norm(h, m, p.dim, w.post_ffn_norm.data(), p.eps, h);
      backend_.add(x, h, m * p.dim);
    }
    return x;
  }

 private:
  Backend& backend_;
  const Hyperparameters hyper_;
  const Gemma3Settings settings_;
  const PackedMatrix& embedding_;
  const std::vector<Gemma3Layer> layers_;
  RopeAngles global_rope_;
  RopeAngles local_rope_;
  // Activations, [max_rows][…].
  FloatBuffer x_, h_, q_, k_, v_, attended_, gate_, up_;
};

Result<Gemma3Layer> load_layer(WeightLoader& loader,
                               const Hyperparameters& p,
                               std::uint32_t layer) {
  const auto name = [layer](std::string_view what) {
    return fmt::format("blk.{}.{}.weight", layer, what);
  };
  Gemma3Layer out;
  BATON_ASSIGN(out.attn_norm, loader.vector(name("attn_norm"), p.dim));
  BATON_ASSIGN(out.q, loader.matrix(name("attn_q"), p.q_dim(), p.dim));
  BATON_ASSIGN(out.k, loader.matrix(name("attn_k"), p.kv_dim(), p.dim));
  BATON_ASSIGN(out.v, loader.matrix(name("attn_v"), p.kv_dim(), p.dim));
  BATON_ASSIGN(out.q_norm, loader.vector(name("attn_q_norm"), p.head_dim));
  BATON_ASSIGN(out.k_norm, loader.vector(name("attn_k_norm"), p.head_dim));
  BATON_ASSIGN(out.o, loader.matrix(name("attn_output"), p.dim, p.q_dim()));
  BATON_ASSIGN(out.post_attn_norm, loader.vector(name("post_attention_norm"), p.dim));
  BATON_ASSIGN(out.ffn_norm, loader.vector(name("ffn_norm"), p.dim));
  BATON_ASSIGN(out.gate, loader.matrix(name("ffn_gate"), p.ffn, p.dim));
  BATON_ASSIGN(out.up, loader.matrix(name("ffn_up"), p.ffn, p.dim));
  BATON_ASSIGN(out.down, loader.matrix(name("ffn_down"), p.dim, p.ffn));
  BATON_ASSIGN(out.post_ffn_norm, loader.vector(name("post_ffw_norm"), p.dim));
  return out;
}

Result<Gemma3Settings> read_settings(const ModelFile& file, const Hyperparameters& hyper) {
  constexpr std::uint32_t k27bLayers = 62;
  Gemma3Settings out;
  const std::uint64_t window = file.get_uint("gemma3.attention.sliding_window").value_or(0);
  const std::uint64_t pattern =
      file.get_uint("gemma3.attention.sliding_window_pattern").value_or(6);
  if (window > (1U << 24U) || pattern < 1 || pattern > hyper.layers + 6) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("gemma3.attention: sliding window {} with pattern {} is not possible",
                            window,
                            pattern));
  }
  out.window = static_cast<std::uint32_t>(window);
  out.pattern = static_cast<std::uint32_t>(pattern);
  out.local_rope_base = file.get_float("gemma3.rope.freq_base_swa").value_or(1e4);
  if (!std::isfinite(out.local_rope_base) || out.local_rope_base <= 0) {
    return fail(ErrorCode::InvalidModel, "key gemma3.rope.freq_base_swa: must be positive");
  }
  if (file.get_float("gemma3.final_logit_softcapping").value_or(0) != 0) {
    return fail(ErrorCode::InvalidModel,
                "key gemma3.final_logit_softcapping: soft-capped logits are not supported");
  }
  // The 27B model alone scales by its width a head; no key says so.
  const std::uint32_t query_dim =
      hyper.layers == k27bLayers ? hyper.dim / hyper.heads : hyper.head_dim;
  out.attention_scale = 1.0F / std::sqrt(static_cast<float>(query_dim));
  return out;
}

}  // namespace

Result<std::unique_ptr<ForwardPass>> make_gemma3(WeightLoader& loader,
                                                 const Hyperparameters& hyper,
                                                 const PackedMatrix& embedding,
                                                 std::size_t max_rows) {
  BATON_ASSIGN(const auto settings, read_settings(loader.file(), hyper));
  std::vector<Gemma3Layer> layers;
  for (std::uint32_t layer = 0; layer < hyper.layers; ++layer) {
    BATON_ASSIGN(auto loaded, load_layer(loader, hyper, layer));
    layers.push_back(std::move(loaded));
  }
  return std::make_unique<Gemma3>(
      loader.backend(), hyper, settings, embedding, std::move(layers), max_rows);
}

}  // namespace baton::engine
