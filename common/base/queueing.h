// How long arrivals wait for one of several equal servers, by the Allen-Cunneen approximation of
// M/G/n over Erlang's formula: random arrivals, any spread of service times.
//
// Thread: pure functions. Failure: none; more work than the servers do waits for ever (infinity).
#pragma once

#include <cstdint>

namespace baton {

struct QueueLoad {
  std::uint32_t servers = 1;
  double rate = 0;       // arrivals a second
  double service_s = 0;  // mean
  double variation = 0;  // of the service times: variance over the square of the mean
};

// What the share `quantile` of arrivals waits at most, in seconds.
double wait_quantile(const QueueLoad& load, double quantile);

}  // namespace baton
