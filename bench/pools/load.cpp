#include "bench/pools/load.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "bench/route/noise.h"

namespace baton::bench {
namespace {

constexpr double kInputSpread = 0.7;  // sigma of the logarithm of lengths
constexpr double kOutputSpread = 0.6;
constexpr double kHour = 3600;

// Short questions with long answers, and long documents with short ones.
constexpr LoadPoint kChat{13, 600, 450};
constexpr LoadPoint kDocuments{5, 3200, 150};

LoadPoint between(const LoadPoint& a, const LoadPoint& b, double share) {
  const auto mix = [share](double x, double y) { return x + (y - x) * share; };
  return {mix(a.rate, b.rate), mix(a.input, b.input), mix(a.output, b.output)};
}

double draw_length(Noise& noise, double mean, double spread, double most) {
  return std::clamp(mean * std::exp(-spread * spread / 2) * noise.factor(spread), 1.0, most);
}

}  // namespace

std::vector<PoolLoadShape> pool_loads(double day_s, double scale) {
  std::vector<PoolLoadShape> loads;
  const auto add = [&](std::string name, double seconds, bool is_steady, auto at) {
    loads.push_back({std::move(name), seconds, is_steady, [at, scale](double t) {
                       LoadPoint point = at(t);
                       point.rate *= scale;
                       return point;
                     }});
  };
  add("steady", 6 * kHour, true, [](double) { return between(kChat, kDocuments, 0.5); });
  add("step", 3 * kHour, false, [](double t) {
    return t < kHour || t >= 2 * kHour ? kChat : kDocuments;
  });
  add("ramp", 3 * kHour, false, [](double t) {
    return between(kChat, kDocuments, std::clamp(t / kHour - 1, 0.0, 1.0));
  });
  add("diurnal", day_s, false, [day_s](double t) {
    const double angle = 2 * std::numbers::pi * t / day_s;
    // Chat by day, documents by night, fewer of both in between.
    LoadPoint point = between(kChat, kDocuments, 0.5 + 0.5 * std::cos(angle));
    point.rate *= 0.85 + 0.15 * std::cos(2 * angle);
    return point;
  });
  add("shifting ISL", 4 * kHour, false, [](double t) {
    constexpr double kInputs[] = {700, 2600, 1200, 3200, 900, 1800};
    constexpr double kRates[] = {16, 7, 12, 5.6, 14, 9};
    const auto phase = static_cast<std::size_t>(t / (40 * 60)) % std::size(kInputs);
    return LoadPoint{kRates[phase], kInputs[phase], 300};
  });
  return loads;
}

PoolTrace draw(const PoolLoadShape& shape, std::uint64_t seed) {
  Noise noise(seed);
  double highest = 0;
  for (double t = 0; t < shape.seconds; t += 10) {
    highest = std::max(highest, shape.at(t).rate);
  }
  highest *= 1.05;
  PoolTrace trace;
  double at = 0;
  while (true) {
    at -= std::log(1 - noise.uniform()) / highest;
    if (at >= shape.seconds) {
      return trace;
    }
    const LoadPoint now = shape.at(at);
    if (noise.uniform() * highest >= now.rate) {
      continue;
    }
    const double input = draw_length(noise, now.input, kInputSpread, 16'000);
    const double output = draw_length(noise, now.output, kOutputSpread, 2'000);
    trace.push_back({at, static_cast<std::uint32_t>(input), static_cast<std::uint32_t>(output)});
  }
}

}  // namespace baton::bench
