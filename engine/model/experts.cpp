#include "engine/model/experts.h"

#include <array>

namespace baton::engine {

using kernels::MatmulOut;

ExpertMixer::ExpertMixer(kernels::Backend& backend,
                         const DecoderSpec& spec,
                         const RankShare& share,
                         std::size_t max_rows)
    : backend_(backend),
      spec_(spec.experts),
      gate_function_(spec.gate),
      dim_(spec.dim),
      ffn_(share.ffn.count),
      experts_(max_rows * spec_.used),
      weights_(experts_.size()),
      places_(experts_.size()),
      rows_(experts_.size()),
      firsts_(spec_.count + 1),
      logits_(backend, max_rows * spec_.count),
      inputs_(backend, experts_.size() * dim_),
      gate_(backend, experts_.size() * ffn_),
      up_(backend, experts_.size() * ffn_) {}

void ExpertMixer::run(const LayerWeights& weights, float* x, std::size_t m) {
  backend_.matmul(x, m, std::array{MatmulOut{weights.router.get(), logits_.data()}});
  backend_.route(logits_.data(),
                 m,
                 {spec_.count, spec_.used, spec_.renormalise},
                 experts_.data(),
                 weights_.data());
  group(m);
  const std::size_t all = m * spec_.used;
  float* const inputs = inputs_.data();
  float* const gate = gate_.data();
  float* const up = up_.data();
  backend_.gather_rows(x, dim_, {rows_.data(), all}, inputs);
  for (std::uint32_t e = 0; e < spec_.count; ++e) {
    const std::size_t first = firsts_[e];
    const FeedForwardWeights& w = weights.experts[e];
    if (const std::size_t count = firsts_[e + 1] - first; count > 0) {
      backend_.matmul(inputs + first * dim_,
                      count,
                      std::array{MatmulOut{w.gate.get(), gate + first * ffn_},
                                 MatmulOut{w.up.get(), up + first * ffn_}});
    }
  }
  apply_gate(backend_, gate_function_, gate, up, all, ffn_);
  float* const outputs = inputs;
  for (std::uint32_t e = 0; e < spec_.count; ++e) {
    const std::size_t first = firsts_[e];
    if (const std::size_t count = firsts_[e + 1] - first; count > 0) {
      backend_.matmul(gate + first * ffn_,
                      count,
                      std::array{MatmulOut{weights.experts[e].down.get(), outputs + first * dim_}});
    }
  }
  backend_.mix_rows(outputs, dim_, {places_.data(), all}, weights_.data(), spec_.used, x);
}

// Gives each (row, rank) a place: experts one after the other, rows ascending at each.
void ExpertMixer::group(std::size_t m) {
  const std::size_t all = m * spec_.used;
  firsts_.assign(spec_.count + 1, 0);
  for (std::size_t i = 0; i < all; ++i) {
    ++firsts_[experts_[i] + 1];
  }
  for (std::uint32_t e = 0; e < spec_.count; ++e) {
    firsts_[e + 1] += firsts_[e];
  }
  std::vector<std::uint32_t> next(firsts_.begin(), firsts_.end() - 1);
  for (std::size_t i = 0; i < all; ++i) {
    places_[i] = next[experts_[i]]++;
    rows_[places_[i]] = static_cast<std::uint32_t>(i / spec_.used);
  }
}

void apply_gate(kernels::Backend& backend,
                GateFunction function,
                float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim) {
  if (function == GateFunction::Silu) {
    backend.silu_mul(gate, up, m, dim, dim, gate);
  } else {
    backend.gelu_mul(gate, up, m, dim, dim, gate);
  }
}

}  // namespace baton::engine
