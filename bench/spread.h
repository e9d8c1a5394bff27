// How measured values are spread: percentiles by nearest rank.
//
// Thread: pure functions. Failure: none; of no values all is zero.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace baton::bench {

// In the unit of the values.
struct Spread {
  std::size_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
Spread spread_of(std::vector<double> values);
// The smallest value that `part` of them are not above, 0.5 for the median.
double quantile(std::vector<double> values, double part);
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace baton::bench
