// Random numbers by key, not by state: the draw for a token depends on (seed, choice, position)
// alone, so that any node can continue any sequence. Source: Philox4x32-10 (Salmon et al. 2011).
//
// Thread: pure. Failure: none.
#pragma once

#include <cstdint>

namespace baton::engine {

// Uniform in [0, 1), 53 bits.
double keyed_uniform(std::uint64_t seed, std::uint32_t choice, std::uint64_t position);

}  // namespace baton::engine
