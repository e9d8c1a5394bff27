// What one routing decision costs on this machine: the lookup of a prompt's blocks, and with the
// choice of a pair.
//
// Thread: the caller's. Failure: none.
#pragma once

#include <cstdint>

namespace baton::bench {

struct DecisionCost {
  double lookup_ns = 0;
  double whole_ns = 0;
  std::uint64_t known_blocks = 0;
  double bytes_per_block = 0;  // of the map
};

// `nodes`: half of them prefill, half decode; each holds 10,000 blocks beside those of the prompts.
DecisionCost measure_decision(std::uint32_t nodes, std::uint32_t prompt_blocks);

}  // namespace baton::bench
