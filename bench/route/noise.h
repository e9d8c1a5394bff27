// Random numbers of a replay: the same for the same seed.
//
// Thread: plain value. Failure: none.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace baton::bench {

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}

  std::uint64_t bits() {  // SplitMix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }  // [0, 1)
  // A factor around 1; `sigma` of its logarithm.
  double factor(double sigma) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return std::exp(sigma * radius * std::cos(2 * std::numbers::pi * uniform()));
  }

 private:
  std::uint64_t state_;
};

}  // namespace baton::bench
