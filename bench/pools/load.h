// The loads that pool policies are compared on: how many requests come when, and how long they are.
// A load is random arrivals with lengths spread around means that move with time.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace baton::bench {

struct LoadPoint {
  double rate = 0;    // requests a second
  double input = 0;   // mean tokens of a prompt
  double output = 0;  // mean tokens of an answer
};

struct PoolLoadShape {
  std::string name;
  double seconds = 0;
  bool is_steady = false;
  std::function<LoadPoint(double at)> at;  // [0, seconds)
};

// Steady, step, ramp, diurnal and shifting prompt lengths. `day_s`: length of the diurnal load's
// day; the others are as long as they are. `scale`: times the rates.
std::vector<PoolLoadShape> pool_loads(double day_s, double scale);

struct PoolRequest {
  double at_s = 0;
  std::uint32_t input = 0;
  std::uint32_t output = 0;
};
using PoolTrace = std::vector<PoolRequest>;

PoolTrace draw(const PoolLoadShape& shape, std::uint64_t seed);

}  // namespace baton::bench
