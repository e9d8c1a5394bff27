// Random numbers as a value that is passed in, so that a test or a simulation repeats a run from
// its seed.
//
// Thread: `system_random()` may be called from any thread; a `seeded_random` belongs to one thread.
// Failure: none; the process ends when the system has no randomness.
#pragma once

#include <cstdint>
#include <functional>

namespace baton {

// Each call gives 64 fresh uniform bits.
using RandomSource = std::function<std::uint64_t()>;

// From the operating system: for ids that nobody may guess.
RandomSource system_random();
// The same sequence for the same seed, on every machine.
RandomSource seeded_random(std::uint64_t seed);

}  // namespace baton
