#include "bench/spread.h"

#include <algorithm>
#include <cmath>

namespace baton::bench {

namespace {

// REQUIRES: sorted, not empty.
double value_at(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values.empty() ? 0 : value_at(values, part);
}

Spread spread_of(std::vector<double> values) {
  Spread out;
  out.count = values.size();
  if (values.empty()) {
    return out;
  }
  std::ranges::sort(values);
  for (const double value : values) {
    out.mean += value / static_cast<double>(values.size());
  }
  out.p50 = value_at(values, 0.5);
  out.p90 = value_at(values, 0.9);
  out.p99 = value_at(values, 0.99);
  out.max = values.back();
  return out;
}

}  // namespace baton::bench
