#include "engine/kv/kv_memory.h"

#include <utility>

#include "common/base/check.h"

namespace baton::engine {

Result<std::unique_ptr<KvMemory>> KvMemory::create(const KvLayout& layout, const Options& options) {
  BATON_ASSIGN(KvArena arena,
               KvArena::create(layout, options.num_blocks, options.available_memory));
  return std::unique_ptr<KvMemory>(new KvMemory(std::move(arena), options));
}

KvMemory::KvMemory(KvArena arena, const Options& options)
    : arena_(std::move(arena)),
      pool_(arena_.view()),
      index_(arena_.view().layout.block_tokens, options.prefix_cache) {}

Result<std::vector<BlockLease>> KvMemory::acquire(std::uint32_t count) {
  if (count > pool_.free() && count <= num_obtainable()) {
    index_.evict(count - pool_.free());
  }
  return pool_.acquire(count);
}

void KvMemory::check_invariants() const {
  pool_.check_invariants();
  index_.check_invariants();
  BATON_CHECK(pool_.count(BlockUse::Cached) == index_.num_blocks(),
              "cached blocks differ from the prefix index");
}

}  // namespace baton::engine
