#include "common/types/prefix_hash.h"

#include <xxhash.h>

namespace baton {

std::uint64_t next_prefix_hash(std::uint64_t parent, std::span<const TokenId> block) {
  return XXH3_64bits_withSeed(block.data(), block.size_bytes(), parent);
}

}  // namespace baton
