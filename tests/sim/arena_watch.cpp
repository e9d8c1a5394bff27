#include "tests/sim/arena_watch.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace baton::sim {
namespace {

std::string_view name_of(engine::BlockUse use) {
  switch (use) {
    case engine::BlockUse::Free:
      return "free";
    case engine::BlockUse::InUse:
      return "in use";
    case engine::BlockUse::Granted:
      return "granted";
    case engine::BlockUse::Quarantined:
      return "quarantined";
    case engine::BlockUse::Cached:
      return "cached";
  }
  return "unknown";
}

}  // namespace

void ArenaWatch::attach(const engine::KvMemory& kv) {
  kv_ = &kv;
  writer_.resize(kv.pool().total());
  digests_.resize(kv.pool().total());
  written_.assign(kv.pool().total(), true);
}

void ArenaWatch::broken(const std::string& what) {
  world_.fail(fmt::format("{}: {}", node_, what));
}

void ArenaWatch::opened(LeaseId lease, std::span<const BlockRun> runs) {
  for (const BlockRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      LeaseId& writer = writer_[run.first.value + i];
      if (writer) {
        broken(fmt::format("block {} is granted to lease {:x} while {:x} may still write it",
                           run.first.value + i,
                           lease.low,
                           writer.low));
      }
      writer = lease;
    }
  }
}

void ArenaWatch::fenced(LeaseId lease) {
  for (LeaseId& writer : writer_) {
    if (writer == lease) {
      writer = {};
    }
  }
}

void ArenaWatch::landing(LeaseId lease, BlockId block) {
  written_[block.value] = true;
  const engine::BlockUse use = kv_->pool().use(block);
  if (writer_[block.value] != lease) {
    broken(fmt::format("lease {:x} writes block {}, which is not its own", lease.low, block.value));
  } else if (use != engine::BlockUse::Granted && use != engine::BlockUse::Quarantined) {
    broken(fmt::format(
        "lease {:x} writes block {}, which is {}", lease.low, block.value, name_of(use)));
  }
}

void ArenaWatch::step(const engine::StepPlan& plan) {
  const std::uint32_t block_tokens = kv_->layout().block_tokens;
  for (const engine::SequenceSlice& slice : plan.slices) {
    const auto first = slice.first_position / block_tokens;
    const auto last =
        (slice.first_position + static_cast<std::uint32_t>(slice.num_rows()) - 1) / block_tokens;
    for (std::uint32_t i = 0; i <= last; ++i) {
      const BlockId block = slice.blocks[i];
      const engine::BlockUse use = kv_->pool().use(block);
      const bool writes = i >= first;
      if (writes) {
        written_[block.value] = true;
      }
      if (use != engine::BlockUse::InUse && (writes || use != engine::BlockUse::Cached)) {
        broken(fmt::format("a step {} block {}, which is {}",
                           writes ? "writes" : "reads",
                           block.value,
                           name_of(use)));
      }
      if (writer_[block.value]) {
        broken(fmt::format("a step uses block {}, which lease {:x} may still write",
                           block.value,
                           writer_[block.value].low));
      }
    }
  }
}

std::uint64_t ArenaWatch::digest(BlockId block) const {
  std::uint64_t all = 0;
  const KvArenaView& arena = kv_->arena();
  for (std::uint32_t layer = 0; layer < arena.layout.layers; ++layer) {
    all = XXH3_64bits_withSeed(arena.block(layer, block), arena.layout.block_bytes(), all);
  }
  return all;
}

void ArenaWatch::scan() {
  for (std::uint32_t i = 0; i < digests_.size(); ++i) {
    const std::uint64_t now = digest(BlockId{i});
    if (!written_[i] && now != digests_[i]) {
      broken(fmt::format(
          "block {} ({}) changed and nobody wrote it", i, name_of(kv_->pool().use(BlockId{i}))));
    }
    digests_[i] = now;
    written_[i] = false;
  }
}

}  // namespace baton::sim
