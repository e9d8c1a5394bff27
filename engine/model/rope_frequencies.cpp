#include "common/base/fixed_math.h"
#include "engine/model/decoder_spec.h"

namespace baton::engine {

std::vector<double> rope_frequencies(std::uint32_t dimensions, double base) {
  const double log_base = fixed_log(base);
  std::vector<double> out(dimensions / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(dimensions);
    out[i] = fixed_exp(-exponent * log_base);
  }
  return out;
}

}  // namespace baton::engine
