#include "gateway/routing/prompt_chain.h"

#include <algorithm>

#include "common/types/prefix_hash.h"

namespace baton::gateway {
namespace {

PromptChain make_chain(std::span<const TokenId> prompt, std::uint32_t block_tokens) {
  PromptChain chain{block_tokens, {}};
  chain.hashes.reserve(prompt.size() / block_tokens);
  std::uint64_t parent = 0;
  for (; prompt.size() >= block_tokens; prompt = prompt.subspan(block_tokens)) {
    parent = next_prefix_hash(parent, prompt.first(block_tokens));
    chain.hashes.push_back(parent);
  }
  return chain;
}

}  // namespace

PromptChains hash_prompt(std::span<const TokenId> prompt,
                         std::span<const std::uint32_t> block_sizes) {
  PromptChains chains;
  for (const std::uint32_t size : block_sizes) {
    chain_of(chains, prompt, size);
  }
  return chains;
}

const PromptChain& chain_of(PromptChains& chains,
                            std::span<const TokenId> prompt,
                            std::uint32_t block_tokens) {
  const auto found = std::ranges::find(chains, block_tokens, &PromptChain::block_tokens);
  return found != chains.end() ? *found : chains.emplace_back(make_chain(prompt, block_tokens));
}

}  // namespace baton::gateway
