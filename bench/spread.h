// How measured values are spread: percentiles by nearest rank.
//
// Thread: pure functions. Failure: none; of no values all is zero.
#pragma once

#include <cstddef>
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
// A percentile is the smallest value that so large a part is not above.
Spread spread_of(std::vector<double> values);

}  // namespace baton::bench
