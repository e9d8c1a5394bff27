// Random numbers by key, not by state: the draw for a token depends on (seed, choice, position)
// alone, so that any node can continue any sequence, on any device. Source: Philox4x32-10 (Salmon
// et al. 2011).
//
// Thread: pure. Failure: none.
#pragma once

#include <cstdint>

namespace baton {

// Uniform in [0, 1), 53 bits.
constexpr double keyed_uniform(std::uint64_t seed, std::uint32_t choice, std::uint64_t position) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  std::uint32_t c[4] = {
      static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U), choice, 0};
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c[0];
    const std::uint64_t product1 = kMultiplier1 * c[2];
    c[0] = static_cast<std::uint32_t>(product1 >> 32U) ^ c[1] ^ key0;
    c[1] = static_cast<std::uint32_t>(product1);
    c[2] = static_cast<std::uint32_t>(product0 >> 32U) ^ c[3] ^ key1;
    c[3] = static_cast<std::uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const std::uint64_t bits = (std::uint64_t{c[1]} << 32U) | c[0];
  return static_cast<double>(bits >> 11U) * 0x1.0p-53;
}

}  // namespace baton
