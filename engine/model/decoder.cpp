#include "engine/model/decoder.h"

#include <array>
#include <utility>

namespace baton::engine {

using kernels::MatmulOut;
using kernels::PackedMatrix;

Decoder::Decoder(kernels::Backend& backend,
                 DecoderSpec spec,
                 const RankShare& share,
                 DecoderWeights weights,
                 std::size_t max_rows,
                 std::size_t max_head_rows)
    : backend_(backend),
      spec_(std::move(spec)),
      share_(share),
      weights_(std::move(weights)),
      x_(max_rows * spec_.dim),
      h_(max_rows * spec_.dim),
      q_(max_rows * q_dim()),
      k_(max_rows * kv_dim()),
      v_(max_rows * kv_dim()),
      attended_(max_rows * q_dim()),
      gate_(max_rows * share_.ffn.count),
      up_(max_rows * share_.ffn.count),
      normed_(max_head_rows * spec_.dim) {
  for (const RopeSpec& rope : spec_.ropes) {
    ropes_.emplace_back(rope.frequencies, max_rows);
  }
}

const float* Decoder::run(const StepRows& rows,
                          const KvArenaView& arena,
                          const LayerDone& layer_done) {
  angles_.clear();
  for (RopeAngles& rope : ropes_) {
    angles_.push_back(rope.table_for(rows.positions()));
  }
  Step step{rows, arena, layer_done, rows.size(), rows.slices()};
  backend_.embed(*weights_.embedding, rows.ids(), spec_.embedding_scale, x_.data());
  for (std::uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
    if (!attention_block(layer, step)) {
      break;
    }
    feed_forward_block(layer, step);
  }
  return x_.data();
}

// False when no row is left to compute: nobody asked for a hidden state.
bool Decoder::attention_block(std::uint32_t layer, Step& step) {
  const LayerSpec& s = spec_.layers[layer];
  const LayerWeights& w = weights_.layers[layer];
  const kernels::AttentionParams attention{.layer = layer,
                                           .heads = share_.heads.count,
                                           .kv_heads = share_.kv_heads.count,
                                           .head_dim = spec_.head_dim,
                                           .scale = spec_.attention_scale,
                                           .window = s.window};
  float* const q = q_.data();
  float* const k = k_.data();
  float* const v = v_.data();
  backend_.rms_norm(x_.data(), step.m, spec_.dim, w.attn_norm.data(), spec_.eps, h_.data());
  backend_.matmul(
      h_.data(),
      step.m,
      std::array{MatmulOut{w.q.get(), q}, MatmulOut{w.k.get(), k}, MatmulOut{w.v.get(), v}});
  norm_and_turn(q, share_.heads.count, w.q_norm, s, step);
  norm_and_turn(k, share_.kv_heads.count, w.k_norm, s, step);
  backend_.write_kv(step.arena, attention, step.slices, k, v, kv_dim());
  if (step.layer_done) {
    step.layer_done(layer);
  }
  if (layer + 1 == spec_.layers.size()) {  // all that remains concerns the wanted rows
    step.slices = step.rows.wanted_slices();
    step.m = step.rows.wanted().size();
    if (step.m == 0) {
      return false;
    }
    keep_rows(step.rows.wanted(), x_.data(), spec_.dim);
    keep_rows(step.rows.wanted(), q, q_dim());
  }
  backend_.attention(step.arena, attention, step.slices, q, q_dim(), attended_.data());
  project(*w.o, attended_.data(), step.m, w.post_attn_norm);
  return true;
}

void Decoder::feed_forward_block(std::uint32_t layer, const Step& step) {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t ffn = share_.ffn.count;
  float* const gate = gate_.data();
  float* const up = up_.data();
  backend_.rms_norm(x_.data(), step.m, spec_.dim, w.ffn_norm.data(), spec_.eps, h_.data());
  backend_.matmul(
      h_.data(), step.m, std::array{MatmulOut{w.gate.get(), gate}, MatmulOut{w.up.get(), up}});
  if (spec_.gate == GateFunction::Silu) {
    backend_.silu_mul(gate, up, step.m, ffn, ffn, gate);
  } else {
    backend_.gelu_mul(gate, up, step.m, ffn, ffn, gate);
  }
  project(*w.down, gate, step.m, w.post_ffn_norm);
}

// heads: [m][count * head_dim]
void Decoder::norm_and_turn(float* heads,
                            std::size_t count,
                            const std::vector<float>& norm,
                            const LayerSpec& layer,
                            const Step& step) {
  if (!norm.empty()) {
    backend_.rms_norm(heads, step.m * count, spec_.head_dim, norm.data(), spec_.eps, heads);
  }
  backend_.rope(heads,
                step.m,
                count * spec_.head_dim,
                count,
                spec_.head_dim,
                step.rows.row_numbers(),
                angles_[layer.rope],
                spec_.ropes[layer.rope].style);
}

// A block's last product, added to the stream. With several ranks the product is a partial sum, and
// this is the one place where they meet: twice a layer, in the attention output and down
// projections.
void Decoder::project(const PackedMatrix& weight,
                      const float* input,
                      std::size_t m,
                      const std::vector<float>& post_norm) {
  if (post_norm.empty()) {
    backend_.matmul(input, m, std::array{MatmulOut{&weight, x_.data(), 0, true}});
    return;
  }
  float* const h = h_.data();
  backend_.matmul(input, m, std::array{MatmulOut{&weight, h}});
  backend_.rms_norm(h, m, spec_.dim, post_norm.data(), spec_.eps, h);
  backend_.add(x_.data(), h, m * spec_.dim);
}

void Decoder::head(const float* hidden, std::size_t count, float* out) {
  backend_.rms_norm(
      hidden, count, spec_.dim, weights_.output_norm.data(), spec_.eps, normed_.data());
  backend_.matmul(normed_.data(), count, std::array{MatmulOut{&weights_.head(), out}});
}

}  // namespace baton::engine
