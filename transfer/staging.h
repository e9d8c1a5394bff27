// Fills blocks of a receiver's layout from the sender's arena, for a grant whose layout is not the
// arena's. The grant's blocks are gathered one message at a time into a buffer that the message
// owns, so what is staged is bounded by the sender's window.
//
// Owner: an open send. Thread: its transport's. Failure: none; whoever opens the send has checked
// that the layouts are convertible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "transfer/layout_plan.h"

namespace baton::transfer {

// A context on the sending side: its blocks from token 0 on, of which the first `tokens` tokens
// are computed.
struct ContextBlocks {
  std::vector<BlockId> blocks;
  std::uint32_t tokens = 0;
};

// Whether a grant's blocks lie as the arena's do. Mismatch, with both layouts: neither that nor
// convertible.
Result<bool> needs_conversion(const KvLayout& arena, const KvGrant& grant);

class Staging {
 public:
  // REQUIRES: the arena's layout and grant.layout are convertible.
  Staging(const KvArenaView& arena, const KvGrant& grant);

  // From now on tokens of this context may be gathered. It extends the one before it.
  void extend(std::shared_ptr<const ContextBlocks> context);
  // The grant's blocks [first, first + count) of one layer, counted from prefix_blocks. Tokens
  // beyond the context become zeros. REQUIRES: out holds `count` blocks of the grant's layout.
  void gather(std::uint32_t layer,
              std::uint32_t first,
              std::uint32_t count,
              std::span<std::byte> out) const;
  const KvLayout& layout() const { return layout_; }  // the grant's

 private:
  const KvArenaView arena_;
  const KvLayout layout_;
  const std::uint32_t prefix_blocks_;
  std::shared_ptr<const ContextBlocks> context_;
  mutable std::vector<BlockCopy> copies_;  // scratch
  mutable std::vector<BlockId> targets_;   // scratch
};

}  // namespace baton::transfer
