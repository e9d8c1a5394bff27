#include "transfer/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace baton::transfer {

Result<bool> needs_conversion(const KvLayout& arena, const KvGrant& grant) {
  if (grant.layout_hash == arena.hash()) {
    return false;
  }
  if (grant.layout.layers == 0) {
    return fail(ErrorCode::Mismatch,
                fmt::format("the grant's KV layout has hash {:016x}, ours {:016x}: {}",
                            grant.layout_hash,
                            arena.hash(),
                            arena.to_string()));
  }
  if (!is_convertible(arena, grant.layout)) {
    return fail(ErrorCode::Mismatch,
                fmt::format("KV layouts cannot be converted: the grant has {}; here are {}",
                            grant.layout.to_string(),
                            arena.to_string()));
  }
  return true;
}

Staging::Staging(const KvArenaView& arena, const KvGrant& grant)
    : arena_(arena), layout_(grant.layout), prefix_blocks_(grant.prefix_blocks) {
  BATON_CHECK(is_convertible(arena.layout, layout_), "a send converts only what can be converted");
}

void Staging::extend(std::shared_ptr<const ContextBlocks> context) {
  if (context_ == nullptr || context->tokens >= context_->tokens) {
    context_ = std::move(context);
  }
}

void Staging::gather(std::uint32_t layer,
                     std::uint32_t first,
                     std::uint32_t count,
                     std::span<std::byte> out) const {
  const std::size_t block_bytes = layout_.block_bytes();
  BATON_CHECK(out.size() == count * block_bytes && context_ != nullptr,
              "a gather fills whole blocks of a known context");
  targets_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    targets_.emplace_back(i);
  }
  const Range all{0, layout_.kv_heads};
  const LayoutSide source{arena_.layout, all, 0, context_->blocks};
  const LayoutSide target{layout_, all, (prefix_blocks_ + first) * layout_.block_tokens, targets_};
  const Range tokens = intersect(target.tokens(), {0, context_->tokens});
  if (tokens.count < target.tokens().count) {
    std::memset(out.data(), 0, out.size());
  }
  copies_.clear();
  plan_layout(source, target, all, tokens, copies_);
  for (const BlockCopy& copy : copies_) {
    run(copy, arena_.block(layer, copy.source), out.data() + copy.target.value * block_bytes);
  }
}

}  // namespace baton::transfer
