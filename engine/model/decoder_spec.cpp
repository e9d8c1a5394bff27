#include "engine/model/decoder_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/base/fixed_math.h"

namespace baton::engine {

RankShare whole_model(const DecoderSpec& spec, std::uint32_t vocab) {
  RankShare share{.heads = {0, spec.heads},
                  .kv_heads = {0, spec.kv_heads},
                  .ffn = {0, spec.ffn},
                  .vocab = {0, vocab}};
  share.attention.own = {share.kv_heads};
  share.feed_forward.own = {share.ffn};
  return share;
}

void limit_context(DecoderSpec& spec, std::uint32_t context) {
  spec.context = context;
  for (RopeSpec& rope : spec.ropes) {
    if (!rope.long_frequencies.empty() && context > rope.long_after) {
      rope.frequencies = std::move(rope.long_frequencies);
    }
    rope.long_frequencies.clear();
  }
}

std::vector<double> rope_frequencies(std::uint32_t dimensions, double base) {
  const double log_base = fixed_log(base);
  std::vector<double> out(dimensions / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(dimensions);
    out[i] = fixed_exp(-exponent * log_base);
  }
  return out;
}

void scale_yarn(const YarnScaling& yarn, std::vector<double>& frequencies) {
  const double dimensions = 2.0 * static_cast<double>(frequencies.size());
  // The dimension (of both halves together, over two) that turns so often in the original context.
  const auto place = [&](double turns) {
    return dimensions * fixed_log(yarn.original_context / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * fixed_log(yarn.base));
  };
  const double low = std::max(0.0, std::floor(place(yarn.fast)));
  const double high = std::min(dimensions - 1.0, std::ceil(place(yarn.slow)));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double kept = 1.0 - std::clamp(ramp, 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * (1.0 - kept) + frequencies[i] * kept;
  }
}

double yarn_magnitude(double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * fixed_log(factor) + 1.0;
}

}  // namespace baton::engine
