#include "bench/spread.h"

#include <algorithm>
#include <cmath>

namespace baton::bench {

Spread spread_of(std::vector<double> values) {
  Spread out;
  out.count = values.size();
  if (values.empty()) {
    return out;
  }
  std::ranges::sort(values);
  const auto at = [&](double part) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size())));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  for (const double value : values) {
    out.mean += value / static_cast<double>(values.size());
  }
  out.p50 = at(0.5);
  out.p90 = at(0.9);
  out.p99 = at(0.99);
  out.max = values.back();
  return out;
}

}  // namespace baton::bench
