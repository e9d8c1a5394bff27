#include "kernels/cpu/router.h"

#include <algorithm>

#include "common/base/fixed_math.h"

namespace baton::kernels::cpu {

void route_row(const float* logits,
               const RouteParams& params,
               std::uint32_t* experts,
               float* weights) {
  for (std::uint32_t j = 0; j < params.used; ++j) {
    const auto* const end = experts + j;
    std::uint32_t best = params.count;
    for (std::uint32_t e = 0; e < params.count; ++e) {
      if ((best == params.count || logits[e] > logits[best]) &&
          std::find(experts, experts + j, e) == end) {
        best = e;
      }
    }
    experts[j] = best;
  }
  const double largest = logits[experts[0]];
  const auto power = [&](std::uint32_t e) {
    return fixed_exp(static_cast<double>(logits[e]) - largest);
  };
  double total = 0;
  if (params.renormalise) {
    for (std::uint32_t j = 0; j < params.used; ++j) {
      total += power(experts[j]);
    }
  } else {
    for (std::uint32_t e = 0; e < params.count; ++e) {
      total += power(e);
    }
  }
  for (std::uint32_t j = 0; j < params.used; ++j) {
    weights[j] = static_cast<float>(power(experts[j]) / total);
  }
}

}  // namespace baton::kernels::cpu
