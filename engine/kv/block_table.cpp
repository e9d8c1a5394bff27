#include "engine/kv/block_table.h"

#include <utility>

#include "common/base/check.h"

namespace baton::engine {

BlockTable::BlockTable(PrefixRef prefix, std::vector<BlockLease> own) : shared_(std::move(prefix)) {
  for (std::uint32_t i = 0; i < shared_.num_blocks(); ++i) {
    ids_.push_back(shared_.block(i));
    own_.emplace_back();
  }
  append(std::move(own));
}

void BlockTable::append(std::vector<BlockLease> leases) {
  for (BlockLease& lease : leases) {
    lease.mark(BlockUse::InUse);
    ids_.push_back(lease.id());
    own_.push_back(std::move(lease));
  }
}

void BlockTable::seal(PrefixIndex& index,
                      std::uint32_t block_tokens,
                      std::span<const TokenId> tokens,
                      std::uint32_t computed) {
  BATON_CHECK(computed <= tokens.size(), "more was computed than there are tokens");
  if (!index.enabled()) {
    return;
  }
  const std::uint32_t full = computed / block_tokens;
  for (std::uint32_t i = num_sealed(); i < full; ++i) {
    // When an equal block is known, this sequence keeps its own copy until it ends: the chain
    // goes on by the known one.
    index.extend(shared_, tokens.subspan(std::size_t{i} * block_tokens, block_tokens), own_[i]);
  }
}

void BlockTable::clear() {
  ids_.clear();
  own_.clear();
  shared_.reset();
}

}  // namespace baton::engine
