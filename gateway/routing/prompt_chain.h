// The names of a prompt's full blocks, for each block size that nodes use. Made beside tokenizing,
// off the control strand; asked of the prefix map when the request is routed.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"

namespace baton::gateway {

struct PromptChain {
  std::uint32_t block_tokens = 0;
  std::vector<std::uint64_t> hashes;  // of block 0, 1, …
};

using PromptChains = std::vector<PromptChain>;

PromptChains hash_prompt(std::span<const TokenId> prompt,
                         std::span<const std::uint32_t> block_sizes);
// The chain of this block size; it is made when it is missing.
const PromptChain& chain_of(PromptChains& chains,
                            std::span<const TokenId> prompt,
                            std::uint32_t block_tokens);

}  // namespace baton::gateway
