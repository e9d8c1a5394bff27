#include "common/base/random.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace baton {

RandomSource system_random() {
  return [] {
    std::uint64_t bits = 0;
    const auto got = ::getrandom(&bits, sizeof(bits), 0);
    BATON_CHECK(got == static_cast<ssize_t>(sizeof(bits)), "getrandom failed");
    return bits;
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
