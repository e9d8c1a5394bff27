#include "engine/model/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"

namespace baton::engine {

using kernels::MatmulOut;
using kernels::PackedMatrix;

Decoder::Decoder(kernels::Backend& backend,
                 Communicator& ranks,
                 DecoderSpec spec,
                 const RankShare& share,
                 DecoderWeights weights,
                 std::size_t max_rows,
                 std::size_t max_head_rows)
    : backend_(backend),
      ranks_(ranks),
      spec_(std::move(spec)),
      share_(share),
      weights_(std::move(weights)),
      max_rows_(max_rows),
      records_(ranks.size() == 1 && spec_.experts.count == 0 ? backend.make_step_records()
                                                             : nullptr),
      x_(backend, max_rows * spec_.dim),
      h_(backend, max_rows * spec_.dim),
      q_(backend, max_rows * q_dim()),
      k_(backend, max_rows * kv_dim()),
      v_(backend, max_rows * kv_dim()),
      attended_(backend, max_rows * q_dim()),
      gate_(backend, spec_.experts.count > 0 ? 0 : max_rows * share_.ffn.count),
      up_(backend, spec_.experts.count > 0 ? 0 : max_rows * share_.ffn.count),
      experts_(backend, spec_, share_, max_rows),
      normed_(backend, max_head_rows * spec_.dim),
      device_logits_(
          backend,
          backend.is_on_host() || share_.rank > 0 ? 0 : max_head_rows * share_.vocab.back()),
      partials_(backend,
                ranks.size() == 1
                    ? 0
                    : std::max(share_.attention.count(), share_.feed_forward.count()) * max_rows *
                          spec_.dim),
      embedded_(backend, ranks.size() == 1 ? 0 : max_rows * spec_.dim),
      vocab_logits_(backend, ranks.size() == 1 ? 0 : max_head_rows * share_.vocab.back()) {
  for (const RopeSpec& rope : spec_.ropes) {
    ropes_.emplace_back(rope, max_rows);
  }
}

const float* Decoder::run(const StepRows& rows,
                          const KvArenaView& arena,
                          const LayerDone& layer_done) {
  const std::size_t padded = repeatable_rows(rows, layer_done);
  Step step{rows, arena, layer_done, padded > 0 ? padded : rows.size(), rows.slices(), padded > 0};
  const kernels::StepInputs inputs = inputs_of(step);
  layers_done_ = 0;
  if (!step.is_repeatable) {
    backend_.run_step(inputs, [&] { compute(step); });
    return x_.data();
  }
  records_->run(inputs, [&] { compute(step); });
  for (std::uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
    backend_.publish_kv(arena, layer, rows.slices(), false);
  }
  return x_.data();
}

// With how many rows the step is computed so that it can be one of many alike; 0: it cannot.
std::size_t Decoder::repeatable_rows(const StepRows& rows, const LayerDone& layer_done) const {
  if (records_ == nullptr || layer_done || !rows.all_wanted()) {
    return 0;
  }
  const std::size_t padded = records_->rows_for(rows.slices());
  return padded <= max_rows_ ? padded : 0;
}

kernels::StepInputs Decoder::inputs_of(const Step& step) {
  const StepRows& rows = step.rows;
  ids_.assign(rows.ids().begin(), rows.ids().end());
  for (const TokenId id : ids_) {
    BATON_CHECK(id >= 0 && static_cast<std::size_t>(id) < share_.vocab.back(),
                "token id out of range");
  }
  ids_.resize(step.m);  // rows that pad are of token 0
  angles_.clear();
  for (RopeAngles& rope : ropes_) {
    angles_.push_back(rope.table_for(rows.positions(), step.m));
  }
  attentions_.clear();
  for (const LayerSpec& layer : spec_.layers) {
    const bool is_last = &layer == &spec_.layers.back();
    const auto slices = is_last && !rows.all_wanted() ? rows.wanted_slices() : rows.slices();
    const auto is_known = [&](const kernels::StepInputs::Attention& each) {
      return each.window == layer.window && each.slices.data() == slices.data();
    };
    if (!std::ranges::any_of(attentions_, is_known)) {
      attentions_.push_back({slices, layer.window});
    }
  }
  return {.arena = step.arena,
          .ids = ids_,
          .row_numbers = rows.row_numbers(step.m),
          .angles = angles_,
          .slices = rows.slices(),
          .wanted = rows.wanted(),
          .attentions = attentions_,
          .group = spec_.heads / spec_.kv_heads};
}

void Decoder::compute(Step& step) {
  embed(ids_);
  for (std::uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
    if (!attention_block(layer, step)) {
      break;
    }
    feed_forward_block(layer, step);
  }
  finish_layer(static_cast<std::uint32_t>(spec_.layers.size()), step);
}

// Each rank looks up the tokens of its part of the vocabulary.
void Decoder::embed(std::span<const TokenId> ids) {
  if (ranks_.size() == 1) {
    backend_.embed(*weights_.embedding, ids, spec_.embedding_scale, x_.data());
    return;
  }
  std::vector<std::size_t> borders{0};
  std::vector<std::uint32_t> places(ids.size());
  std::vector<TokenId> own;
  std::uint32_t place = 0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t row = 0; row < ids.size(); ++row) {
      const auto id = static_cast<std::uint32_t>(ids[row]);
      if (id < share_.vocab[rank] || id >= share_.vocab[rank + 1]) {
        continue;
      }
      places[row] = place++;
      if (rank == share_.rank) {
        own.push_back(static_cast<TokenId>(id - share_.vocab[rank]));
      }
    }
    borders.push_back(place * std::size_t{spec_.dim});
  }
  float* const all = embedded_.data();
  if (!own.empty()) {
    backend_.embed(*weights_.embedding, own, spec_.embedding_scale, all + borders[share_.rank]);
  }
  ranks_.all_gather({all, borders.back()}, borders);
  backend_.gather_rows(all, spec_.dim, places, x_.data());
}

// False when no row is left to compute: nobody asked for a hidden state.
bool Decoder::attention_block(std::uint32_t layer, Step& step) {
  const LayerSpec& s = spec_.layers[layer];
  const LayerWeights& w = weights_.layers[layer];
  const kernels::AttentionParams params{
      .layer = layer,
      .heads = share_.heads.count,
      .kv_heads = share_.kv_heads.count,
      .first_kv_head = share_.kv_heads.first,
      .head_dim = spec_.head_dim,
      .scale = is_spread(step) ? spec_.attention_scale * spread_factor() : spec_.attention_scale,
      .window = s.window,
      .softcap = spec_.attention_softcap};
  float* const q = q_.data();
  float* const k = k_.data();
  float* const v = v_.data();
  if (params.kv_heads > 0) {
    backend_.rms_norm(x_.data(), step.m, spec_.dim, w.attn_norm.data(), spec_.eps, h_.data());
    backend_.matmul(
        h_.data(),
        step.m,
        std::array{MatmulOut{w.q.get(), q}, MatmulOut{w.k.get(), k}, MatmulOut{w.v.get(), v}});
    if (!w.q_bias.empty()) {
      backend_.add_bias(q, step.m, q_dim(), w.q_bias.data());
      backend_.add_bias(k, step.m, kv_dim(), w.k_bias.data());
      backend_.add_bias(v, step.m, kv_dim(), w.v_bias.data());
    }
    norm_and_turn(q, share_.heads.count, w.q_norm, s, step);
    norm_and_turn(k, share_.kv_heads.count, w.k_norm, s, step);
    if (is_spread(step)) {
      backend_.hadamard(q, step.m * share_.heads.count, spec_.head_dim, 1.0F);
      backend_.hadamard(k, step.m * share_.kv_heads.count, spec_.head_dim, 1.0F);
      backend_.hadamard(v, step.m * share_.kv_heads.count, spec_.head_dim, 1.0F);
    }
    backend_.write_kv(step.arena, params, step.slices, k, v, kv_dim());
  }
  publish(layer, step);
  // All that remains in the last layer concerns the wanted rows.
  if (layer + 1 == spec_.layers.size() && !step.rows.all_wanted()) {
    step.slices = step.rows.wanted_slices();
    step.m = step.rows.wanted().size();
    if (step.m == 0) {
      return false;
    }
    backend_.keep_rows(step.rows.wanted(), x_.data(), spec_.dim);
    backend_.keep_rows(step.rows.wanted(), q, q_dim());
  }
  attend(params, step);
  project(pieces_, share_.attention, step.m, w.post_attn_norm);
  if (!w.o_bias.empty()) {
    backend_.add_bias(x_.data(), step.m, spec_.dim, w.o_bias.data());
  }
  return true;
}

// Says that a layer is done, once its keys and values are in the arena. A device computes on while
// they come: the layer before is waited for, not this one.
void Decoder::publish(std::uint32_t layer, const Step& step) {
  if (step.is_repeatable) {  // which blocks are full differs from step to step
    return;
  }
  backend_.publish_kv(step.arena, layer, step.slices, step.layer_done != nullptr);
  if (backend_.is_on_host()) {
    finish_layer(layer + 1, step);
  } else {
    finish_layer(layer, step);
  }
}

// `layer`: the one behind that which is done.
void Decoder::finish_layer(std::uint32_t layer, const Step& step) {
  if (!step.layer_done || layer <= layers_done_) {
    return;
  }
  backend_.wait_published(layer - 1);
  ranks_.barrier();  // all heads are written
  if (share_.rank == 0) {
    step.layer_done(layer - 1);
  }
  layers_done_ = layer;
}

// Attention piece by piece, each into a matrix of its own: the inputs of the projection.
void Decoder::attend(kernels::AttentionParams params, const Step& step) {
  const std::uint32_t group = spec_.heads / spec_.kv_heads;
  const auto& weights = weights_.layers[params.layer].o;
  float* out = attended_.data();
  pieces_.clear();
  for (std::size_t i = 0; i < share_.attention.own.size(); ++i) {
    const IndexRange& piece = share_.attention.own[i];
    params.first_kv_head = piece.first;
    params.kv_heads = piece.count;
    params.heads = piece.count * group;
    const std::size_t first = std::size_t{piece.first - share_.kv_heads.first} * group;
    backend_.attention(
        step.arena, params, step.slices, q_.data() + first * spec_.head_dim, q_dim(), out);
    if (is_spread(step)) {
      backend_.hadamard(out, step.m * params.heads, spec_.head_dim, spread_factor());
    }
    pieces_.push_back({weights[i].get(), out});
    out += step.m * params.heads * spec_.head_dim;
  }
}

void Decoder::feed_forward_block(std::uint32_t layer, const Step& step) {
  const LayerWeights& w = weights_.layers[layer];
  backend_.rms_norm(x_.data(), step.m, spec_.dim, w.ffn_norm.data(), spec_.eps, h_.data());
  if (!w.experts.empty()) {
    experts_.run(w, h_.data(), step.m);
    add_to_stream(h_.data(), step.m, w.post_ffn_norm);
    return;
  }
  outs_.clear();
  pieces_.clear();
  for (std::size_t i = 0, at = 0; i < w.ffn.size(); ++i) {
    outs_.push_back({w.ffn[i].gate.get(), gate_.data() + at});
    outs_.push_back({w.ffn[i].up.get(), up_.data() + at});
    pieces_.push_back({w.ffn[i].down.get(), gate_.data() + at});
    at += step.m * w.ffn[i].gate->rows();
  }
  if (!outs_.empty()) {
    backend_.matmul(h_.data(), step.m, outs_);
  }
  for (std::size_t i = 0; i < w.ffn.size(); ++i) {
    apply_gate(
        backend_, spec_.gate, outs_[2 * i].y, outs_[2 * i + 1].y, step.m, w.ffn[i].gate->rows());
  }
  project(pieces_, share_.feed_forward, step.m, w.post_ffn_norm);
}

// heads: [m][count * head_dim]
void Decoder::norm_and_turn(float* heads,
                            std::size_t count,
                            const FloatVector& norm,
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
                step.rows.row_numbers(step.m),
                angles_[layer.rope],
                spec_.ropes[layer.rope].style);
}

// A block's last product, added to the stream: the pieces' products, added in ascending order
// whoever computed them.
void Decoder::project(std::span<const Piece> pieces,
                      const PartialSums& sums,
                      std::size_t m,
                      const FloatVector& post_norm) {
  if (sums.count() == 1 && ranks_.size() == 1 && post_norm.empty()) {
    const Piece& whole = pieces.front();
    backend_.matmul(whole.input, m, std::array{MatmulOut{whole.weight, x_.data(), 0, true}});
    return;
  }
  if (ranks_.size() == 1) {
    for (const Piece& piece : pieces) {
      const bool is_first = &piece == pieces.data();
      backend_.matmul(piece.input, m, std::array{MatmulOut{piece.weight, h_.data(), 0, !is_first}});
    }
    add_to_stream(h_.data(), m, post_norm);
    return;
  }
  const std::size_t size = m * spec_.dim;
  float* const all = partials_.data();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    float* const out = all + (sums.borders[share_.rank] + i) * size;
    backend_.matmul(pieces[i].input, m, std::array{MatmulOut{pieces[i].weight, out}});
  }
  std::vector<std::size_t> borders;
  for (const std::uint32_t border : sums.borders) {
    borders.push_back(border * size);
  }
  ranks_.all_gather({all, sums.count() * size}, borders);
  for (std::uint32_t i = 1; i < sums.count(); ++i) {
    backend_.add(all, all + i * size, size);
  }
  add_to_stream(all, m, post_norm);
}

// Adds a block's output to the stream. block: [m][dim], may be changed.
void Decoder::add_to_stream(float* block, std::size_t m, const FloatVector& post_norm) {
  if (!post_norm.empty()) {
    backend_.rms_norm(block, m, spec_.dim, post_norm.data(), spec_.eps, block);
  }
  backend_.add(x_.data(), block, m * spec_.dim);
}

float* Decoder::head(const float* hidden, std::size_t count, float* out) {
  backend_.rms_norm(
      hidden, count, spec_.dim, weights_.output_norm.data(), spec_.eps, normed_.data());
  const std::size_t vocab = share_.vocab.back();
  float* const logits = backend_.is_on_host() ? out : device_logits_.data();
  if (ranks_.size() == 1) {
    backend_.matmul(normed_.data(), count, std::array{MatmulOut{&weights_.head(), logits}});
  } else {
    float* const all = vocab_logits_.data();
    std::vector<std::size_t> borders;
    for (const std::uint32_t border : share_.vocab) {
      borders.push_back(border * count);
    }
    if (weights_.head().rows() > 0) {
      backend_.matmul(normed_.data(),
                      count,
                      std::array{MatmulOut{&weights_.head(), all + borders[share_.rank]}});
    }
    ranks_.all_gather({all, count * vocab}, borders);
    if (share_.rank > 0) {
      return nullptr;
    }
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::size_t width = share_.vocab[rank + 1] - share_.vocab[rank];
      backend_.spread_rows(all + borders[rank], count, width, vocab, logits + share_.vocab[rank]);
    }
  }
  if (spec_.logit_softcap != 0.0F) {
    backend_.softcap(logits, count * vocab, spec_.logit_softcap);
  }
  return logits;
}

}  // namespace baton::engine
