// The llama family: pre-norm blocks of grouped-query attention with interleaved rotary embedding
// and a SiLU-gated feed-forward. Source: Touvron et al. 2023; GGUF files hold q and k permuted for
// interleaved pairs.
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

struct LlamaLayer {
  std::vector<float> attn_norm;            // [dim]
  std::unique_ptr<PackedMatrix> q, k, v;   // [q_dim | kv_dim][dim]
  std::unique_ptr<PackedMatrix> o;         // [dim][q_dim]
  std::vector<float> ffn_norm;             // [dim]
  std::unique_ptr<PackedMatrix> gate, up;  // [ffn][dim]
  std::unique_ptr<PackedMatrix> down;      // [dim][ffn]
};

class Llama final : public ForwardPass {
 public:
  Llama(Backend& backend,
        const Hyperparameters& hyper,
        const PackedMatrix& embedding,
        std::vector<LlamaLayer> layers,
        std::span<const float> rope_factors,
        std::size_t max_rows)
      : backend_(backend),
        hyper_(hyper),
        embedding_(embedding),
        layers_(std::move(layers)),
        rope_(hyper.head_dim, hyper.rope_base, 1.0 / hyper.rope_factor, rope_factors, max_rows),
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
    float* const h = h_.data();  // its normed copy
    float* const q = q_.data();
    float* const k = k_.data();
    float* const v = v_.data();
    const auto angles = rope_.table_for(rows.positions());
    const auto rotate = [&](float* heads, std::size_t count) {
      backend_.rope(heads,
                    m,
                    count * p.head_dim,
                    count,
                    p.head_dim,
                    rows.row_numbers(),
                    angles,
                    kernels::RopeStyle::Interleaved);
    };
    backend_.embed(embedding_, rows.ids(), 1.0F, x);
    for (std::uint32_t layer = 0; layer < p.layers; ++layer) {
      const LlamaLayer& w = layers_[layer];
      const AttentionParams attention{.layer = layer,
                                      .heads = p.heads,
                                      .kv_heads = p.kv_heads,
                                      .head_dim = p.head_dim,
                                      .scale = scale_};
      backend_.rms_norm(x, m, p.dim, w.attn_norm.data(), p.eps, h);
      backend_.matmul(
          h,
          m,
          std::array{MatmulOut{w.q.get(), q}, MatmulOut{w.k.get(), k}, MatmulOut{w.v.get(), v}});
      rotate(q, p.heads);
      rotate(k, p.kv_heads);
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
      backend_.matmul(attended_.data(), m, std::array{MatmulOut{w.o.get(), x, 0, true}});

      backend_.rms_norm(x, m, p.dim, w.ffn_norm.data(), p.eps, h);
      float* const gate = gate_.data();
      float* const up = up_.data();
      backend_.matmul(h, m, std::array{MatmulOut{w.gate.get(), gate}, MatmulOut{w.up.get(), up}});
      backend_.silu_mul(gate, up, m, p.ffn, p.ffn, gate);
      backend_.matmul(gate, m, std::array{MatmulOut{w.down.get(), x, 0, true}});
    }
    return x;
  }

 private:
  Backend& backend_;
  const Hyperparameters hyper_;
  const float scale_ = 1.0F / std::sqrt(static_cast<float>(hyper_.head_dim));
  const PackedMatrix& embedding_;
  const std::vector<LlamaLayer> layers_;
  RopeAngles rope_;
  // Activations, [max_rows][…].
  FloatBuffer x_, h_, q_, k_, v_, attended_, gate_, up_;
};

Result<LlamaLayer> load_layer(WeightLoader& loader, const Hyperparameters& p, std::uint32_t layer) {
  const auto name = [layer](std::string_view what) {
    return fmt::format("blk.{}.{}.weight", layer, what);
  };
  for (const auto* bias : {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"}) {
    if (const auto tensor = fmt::format("blk.{}.{}", layer, bias);
        loader.file().has_tensor(tensor)) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tensor {}: biases are not supported", tensor));
    }
  }
  LlamaLayer out;
  BATON_ASSIGN(out.attn_norm, loader.vector(name("attn_norm"), p.dim));
  BATON_ASSIGN(out.q, loader.matrix(name("attn_q"), p.q_dim(), p.dim));
  BATON_ASSIGN(out.k, loader.matrix(name("attn_k"), p.kv_dim(), p.dim));
  BATON_ASSIGN(out.v, loader.matrix(name("attn_v"), p.kv_dim(), p.dim));
  BATON_ASSIGN(out.o, loader.matrix(name("attn_output"), p.dim, p.q_dim()));
  BATON_ASSIGN(out.ffn_norm, loader.vector(name("ffn_norm"), p.dim));
  BATON_ASSIGN(out.gate, loader.matrix(name("ffn_gate"), p.ffn, p.dim));
  BATON_ASSIGN(out.up, loader.matrix(name("ffn_up"), p.ffn, p.dim));
  BATON_ASSIGN(out.down, loader.matrix(name("ffn_down"), p.dim, p.ffn));
  return out;
}

}  // namespace

Result<std::unique_ptr<ForwardPass>> make_llama(WeightLoader& loader,
                                                const Hyperparameters& hyper,
                                                const PackedMatrix& embedding,
                                                std::size_t max_rows) {
  std::vector<float> factors;
  if (loader.file().has_tensor("rope_freqs.weight")) {
    BATON_ASSIGN(factors, loader.vector("rope_freqs.weight", hyper.head_dim / 2));
    for (const float factor : factors) {
      if (!std::isfinite(factor) || factor <= 0) {
        return fail(ErrorCode::InvalidModel, "tensor rope_freqs.weight: a factor is not positive");
      }
    }
  }
  std::vector<LlamaLayer> layers;
  for (std::uint32_t layer = 0; layer < hyper.layers; ++layer) {
    BATON_ASSIGN(auto loaded, load_layer(loader, hyper, layer));
    layers.push_back(std::move(loaded));
  }
  return std::make_unique<Llama>(
      loader.backend(), hyper, embedding, std::move(layers), factors, max_rows);
}

}  // namespace baton::engine
