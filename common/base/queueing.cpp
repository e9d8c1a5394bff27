#include "common/base/queueing.h"

#include <cmath>
#include <limits>

namespace baton {
namespace {

// Share of arrivals that wait at `servers` with `offered` work, by Erlang's recursion.
double erlang_c(std::uint32_t servers, double offered) {
  double blocked = 1.0;
  for (std::uint32_t n = 1; n <= servers; ++n) {
    blocked = offered * blocked / (n + offered * blocked);
  }
  const double busy = offered / servers;
  return blocked / (1 - busy + busy * blocked);
}

}  // namespace

double wait_quantile(const QueueLoad& load, double quantile) {
  const double offered = load.rate * load.service_s;
  const double busy = offered / load.servers;
  if (busy >= 1) {
    return std::numeric_limits<double>::infinity();
  }
  const double waiting = erlang_c(load.servers, offered);
  if (waiting <= 1 - quantile) {
    return 0;
  }
  const double mean = load.service_s * (1 + load.variation) / (2 * load.servers * (1 - busy));
  return mean * std::log(waiting / (1 - quantile));
}

}  // namespace baton
