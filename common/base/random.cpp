#include "common/base/random.h"

#include <sys/random.h>

#include <array>
#include <utility>

#include "common/base/check.h"

namespace baton {

RandomSource system_random() {
  return [] {
    // Fetched in lots: a system call for each would show in a busy gateway. The kernel gives up to
    // 256 bytes whole or not at all.
    thread_local std::array<std::uint64_t, 32> lot;
    thread_local std::size_t left = 0;
    if (left == 0) {
      const auto got = ::getrandom(lot.data(), sizeof(lot), 0);
      BATON_CHECK(got == static_cast<ssize_t>(sizeof(lot)), "getrandom failed");
      left = lot.size();
    }
    return std::exchange(lot[--left], 0);
  };
}

RandomSource seeded_random(std::uint64_t seed) {
  // SplitMix64 (Steele, Lea, Flood 2014).
  return [state = seed]() mutable {
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  };
}

}  // namespace baton
