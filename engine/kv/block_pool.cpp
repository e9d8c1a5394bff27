#include "engine/kv/block_pool.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "common/base/check.h"

namespace baton::engine {

BlockLease& BlockLease::operator=(BlockLease&& other) noexcept {
  if (this != &other) {
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void BlockLease::mark(BlockUse use) {
  BATON_CHECK(pool_ != nullptr, "only a held block has a use");
  pool_->mark(id_, use);
}

void BlockLease::reset() {
  if (BlockPool* pool = std::exchange(pool_, nullptr)) {
    pool->give_back(id_);
  }
}

BlockPool::BlockPool(const KvArenaView& arena) : arena_(arena), total_(arena.num_blocks) {
  uses_.assign(total_, BlockUse::Free);
  counts_[static_cast<std::size_t>(BlockUse::Free)] = total_;
  if (total_ > 0) {
    add_run(0, total_);
  }
}

BlockPool::~BlockPool() {
  BATON_CHECK(free() == total_, fmt::format("{} KV blocks are still leased", total_ - free()));
}

Result<std::vector<BlockLease>> BlockPool::acquire(std::uint32_t count) {
  if (count > free()) {
    return fail(ErrorCode::NoBlocks,
                fmt::format("{} KV blocks wanted, {} of {} free", count, free(), total_));
  }
  std::vector<BlockLease> leases;
  leases.reserve(count);
  std::uint32_t left = count;
  while (left > 0) {
    // The smallest run that fits whole, else the longest there is.
    auto fit = sized_.lower_bound({left, 0});
    if (fit == sized_.end()) {
      fit = std::prev(sized_.end());
    }
    const auto [length, first] = *fit;
    const std::uint32_t taken = std::min(length, left);
    take_front(first, taken, leases);
    left -= taken;
  }
  return leases;
}

void BlockPool::take_front(std::uint32_t first,
                           std::uint32_t count,
                           std::vector<BlockLease>& leases) {
  const auto run = runs_.find(first);
  const std::uint32_t length = run->second;
  sized_.erase({length, first});
  runs_.erase(run);
  if (length > count) {
    add_run(first + count, length - count);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    mark(BlockId{first + i}, BlockUse::InUse);
    leases.push_back(BlockLease(*this, BlockId{first + i}));
  }
}

void BlockPool::add_run(std::uint32_t first, std::uint32_t count) {
  runs_.emplace(first, count);
  sized_.emplace(count, first);
}

void BlockPool::give_back(BlockId id) {
  BATON_CHECK(uses_[id.value] != BlockUse::Free, "a free block was given back");
  mark(id, BlockUse::Free);
  poison(id);
  std::uint32_t first = id.value;
  std::uint32_t count = 1;
  auto next = runs_.upper_bound(first);
  if (next != runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      count += before->second;
      sized_.erase({before->second, before->first});
      runs_.erase(before);
    }
  }
  if (next != runs_.end() && next->first == id.value + 1) {
    count += next->second;
    sized_.erase({next->second, next->first});
    runs_.erase(next);
  }
  add_run(first, count);
}

void BlockPool::mark(BlockId id, BlockUse use) {
  BlockUse& now = uses_[id.value];
  --counts_[static_cast<std::size_t>(now)];
  ++counts_[static_cast<std::size_t>(use)];
  now = use;
}

void BlockPool::poison([[maybe_unused]] BlockId id) const {
#ifdef BATON_TORTURE
  if (arena_.base != nullptr) {
    for (std::uint32_t layer = 0; layer < arena_.layout.layers; ++layer) {
      // All bits set is a NaN in f16 and in f32.
      std::memset(arena_.block(layer, id), 0xff, arena_.layout.block_bytes());
    }
  }
#endif
}

void BlockPool::check_invariants() const {
  std::array<std::uint32_t, kNumBlockUses> recount{};
  for (const BlockUse use : uses_) {
    ++recount[static_cast<std::size_t>(use)];
  }
  BATON_CHECK(recount == counts_, "block counts differ from the blocks");
  std::uint32_t in_runs = 0;
  std::uint64_t previous_end = 0;
  for (const auto& [first, count] : runs_) {
    BATON_CHECK(in_runs == 0 || first > previous_end, "free runs overlap or were not merged");
    BATON_CHECK(sized_.contains({count, first}), "a free run is missing in the size index");
    for (std::uint32_t i = 0; i < count; ++i) {
      BATON_CHECK(uses_[first + i] == BlockUse::Free, "a used block is in the free list");
    }
    previous_end = first + count;
    in_runs += count;
  }
  BATON_CHECK(in_runs == free() && sized_.size() == runs_.size(), "the free list is incomplete");
}

std::vector<BlockRun> to_runs(std::span<const BlockId> ids) {
  std::vector<BlockRun> runs;
  for (const BlockId id : ids) {
    if (!runs.empty() && runs.back().first.value + runs.back().count == id.value) {
      ++runs.back().count;
    } else {
      runs.push_back({id, 1});
    }
  }
  return runs;
}

std::vector<BlockRun> to_runs(std::span<const BlockLease> leases) {
  std::vector<BlockId> ids;
  ids.reserve(leases.size());
  for (const BlockLease& lease : leases) {
    ids.push_back(lease.id());
  }
  return to_runs(ids);
}

}  // namespace baton::engine
