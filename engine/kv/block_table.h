// The blocks of one sequence in token order: leading ones borrowed from the prefix index, the rest
// its own. Full blocks move from own to shared as they are sealed; their ids never change, because
// a step or a transfer may be reading them.
//
// Owner: a Sequence or a transfer that outlives it. Thread: the node's control strand. Failure:
// none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "engine/kv/block_lease.h"
#include "engine/kv/prefix_index.h"

namespace baton::engine {

class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(PrefixRef prefix, std::vector<BlockLease> own);

  // Block i holds tokens [i * block_tokens, (i + 1) * block_tokens).
  std::span<const BlockId> ids() const { return ids_; }
  std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(ids_.size()); }
  std::uint32_t num_sealed() const { return shared_.num_blocks(); }

  void append(std::vector<BlockLease> leases);
  // Shares every full block of the first `computed` of `tokens` with the index.
  // REQUIRES: tokens.size() >= computed; their keys and values are in the blocks.
  void seal(PrefixIndex& index,
            std::uint32_t block_tokens,
            std::span<const TokenId> tokens,
            std::uint32_t computed);
  void clear();

 private:
  PrefixRef shared_;             // chain of the first num_sealed() blocks' contents
  std::vector<BlockLease> own_;  // [num_blocks]; empty where the index owns the block
  std::vector<BlockId> ids_;     // [num_blocks]
};

}  // namespace baton::engine
