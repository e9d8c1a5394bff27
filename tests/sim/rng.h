// Seeded choices. Each part of a simulation has a stream of its own, so that a change in one does
// not shift the others' choices.
//
// Thread: one owner. Failure: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/exec/executor.h"

namespace baton::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Rng {
 public:
  Rng(std::uint64_t seed, std::uint64_t stream)
      : random_(seeded_random(seed * 0x9e3779b97f4a7c15ULL + stream)) {}

  std::uint64_t bits() { return random_(); }
  // [0, limit). REQUIRES: limit > 0.
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  // [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  Duration between(Duration low, Duration high) {
    return low + Duration(below(static_cast<std::uint64_t>((high - low).count()) + 1));
  }
  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
  }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  RandomSource random_;
};

}  // namespace baton::sim
