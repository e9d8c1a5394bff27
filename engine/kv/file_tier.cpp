#include "engine/kv/file_tier.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/types/prefix_hash.h"

namespace baton::engine {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // between two looks at what might be copied
constexpr std::uint32_t kAhead = 64;             // blocks next to go that are copied ahead
constexpr std::size_t kBatch = 8;                // blocks that one copy holds back from eviction

// Of what the arena holds, whichever way it went, so that it covers the copying too.
std::uint64_t checksum(const KvArenaView& arena, BlockId block) {
  std::uint64_t sum = 0;
  for (std::uint32_t layer = 0; layer < arena.layout.layers; ++layer) {
    sum = XXH3_64bits_withSeed(arena.block(layer, block), arena.layout.block_bytes(), sum);
  }
  return sum;
}

// A slot is [layer][block bytes of a layer].
void to_slot(const KvArenaView& arena, BlockId block, std::span<std::byte> slot) {
  const std::size_t bytes = arena.layout.block_bytes();
  for (std::uint32_t layer = 0; layer < arena.layout.layers; ++layer) {
    std::memcpy(slot.data() + layer * bytes, arena.block(layer, block), bytes);
  }
}

void to_arena(std::span<const std::byte> slot, const KvArenaView& arena, BlockId block) {
  const std::size_t bytes = arena.layout.block_bytes();
  for (std::uint32_t layer = 0; layer < arena.layout.layers; ++layer) {
    std::memcpy(arena.block(layer, block), slot.data() + layer * bytes, bytes);
  }
}

}  // namespace

FileTier::FileTier(KvMemory& kv, Executor& control, Executor& copier, TierFile file)
    : kv_(kv),
      control_(control),
      copier_(copier),
      file_(std::move(file)),
      slots_(file_.num_slots()) {
  for (std::uint32_t i = file_.num_slots(); i > 0; --i) {
    free_.push_back(i - 1);
  }
  kv_.index().set_recall(
      [this](std::uint64_t parent, std::uint64_t name, std::span<const TokenId> tokens) {
        const Slot* const slot = find(parent, name, tokens);
        return slot == nullptr ? 0 : slot->serial;
      });
}

FileTier::~FileTier() {
  kv_.index().set_recall(nullptr);
}

void FileTier::start(std::function<void()> on_freed) {
  on_freed_ = std::move(on_freed);
  arm();
}

void FileTier::stop() {
  timer_.cancel();
  on_freed_ = nullptr;
  for (auto& [id, load] : loads_) {
    load.on_loaded = nullptr;
  }
}

void FileTier::arm() {
  timer_ = control_.call_after(kPause, [this] {
    keep_next();
    arm();
  });
}

void FileTier::keep_next() {
  const BlockPool& pool = kv_.pool();
  // Nothing goes soon while half of the arena is free.
  if (!batch_.empty() || on_freed_ == nullptr || pool.free() > pool.total() / 2) {
    return;
  }
  // A chain that took all slots would write over its own beginning.
  PrefixRef chain = kv_.index().pin_idle(kAhead, file_.num_slots() / 2);
  // Its beginning first: a block is of no use without those before it. What is there already stays
  // longest, the first block the longest of all.
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = chain.num_blocks(); i > 0; --i) {
    const auto known = by_serial_.find(chain.content(i - 1).serial);
    if (known == by_serial_.end()) {
      missing.push_back(i - 1);
    } else {
      chain.mark_kept(i - 1);
      if (slots_[known->second].users == 0) {
        idle_.splice(idle_.end(), idle_, slots_[known->second].place);
      }
    }
  }
  for (; !missing.empty() && batch_.size() < kBatch; missing.pop_back()) {
    const std::uint32_t i = missing.back();
    const auto slot = take_slot();
    if (!slot) {
      break;
    }
    const PrefixRef::Content content = chain.content(i);
    Slot& taken = slots_[*slot];
    taken.serial = content.serial;
    taken.parent = i == 0 ? 0 : chain.content(i - 1).serial;
    taken.name = content.name;
    taken.tokens.assign(content.tokens.begin(), content.tokens.end());
    by_serial_[taken.serial] = *slot;
    chain.mark_kept(i);  // once, or a small file would be written over without end
    use(*slot);
    batch_.push_back({.slot = *slot, .block = chain.block(i)});
  }
  if (batch_.empty()) {
    return;
  }
  batch_chain_ = std::move(chain);
  std::vector<std::span<std::byte>> places;
  for (const Copy& copy : batch_) {
    places.push_back(file_.slot(copy.slot));
  }
  copier_.post([this,
                alive = std::weak_ptr<bool>(alive_),
                &control = control_,
                arena = kv_.arena(),
                copies = batch_,
                places = std::move(places)]() mutable {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      to_slot(arena, copies[i].block, places[i]);
      copies[i].checksum = checksum(arena, copies[i].block);
    }
    control.post([this, alive, copies = std::move(copies)] {
      if (!alive.expired()) {
        kept(copies);
      }
    });
  });
}

void FileTier::kept(const std::vector<Copy>& copies) {
  // The last first: it is to be written over first.
  for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
    Slot& slot = slots_[copy->slot];
    slot.checksum = copy->checksum;
    by_name_.emplace(slot.name, copy->slot);
    release(copy->slot);
  }
  stats_.stored += copies.size();
  batch_.clear();
  batch_chain_.reset();
  if (on_freed_ != nullptr) {
    on_freed_();
    keep_next();
  }
}

std::uint32_t FileTier::look(const PrefixRef& held,
                             std::span<const TokenId> tokens,
                             std::uint32_t most) {
  stats_.asked_tokens += tokens.size() - std::size_t{held.num_blocks()} * kv_.layout().block_tokens;
  return static_cast<std::uint32_t>(walk(held, tokens, most).size());
}

std::vector<std::uint32_t> FileTier::walk(const PrefixRef& held,
                                          std::span<const TokenId> tokens,
                                          std::uint32_t most) const {
  std::vector<std::uint32_t> found;
  const std::uint32_t block_tokens = kv_.layout().block_tokens;
  const std::uint32_t first = held.num_blocks();
  PrefixRef::Content before;
  if (first > 0) {
    before = held.content(first - 1);
  }
  std::uint64_t parent = before.serial;
  std::uint64_t name = before.name;
  for (std::uint32_t i = first; found.size() < most; ++i) {
    if (std::size_t{i + 1} * block_tokens > tokens.size()) {
      break;
    }
    const auto block = tokens.subspan(std::size_t{i} * block_tokens, block_tokens);
    name = next_prefix_hash(name, block);
    const Slot* const slot = find(parent, name, block);
    if (slot == nullptr) {
      break;
    }
    parent = slot->serial;
    found.push_back(static_cast<std::uint32_t>(slot - slots_.data()));
  }
  return found;
}

const FileTier::Slot* FileTier::find(std::uint64_t parent,
                                     std::uint64_t name,
                                     std::span<const TokenId> tokens) const {
  const auto [begin, end] = by_name_.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    const Slot& slot = slots_[it->second];
    if (slot.parent == parent && std::ranges::equal(slot.tokens, tokens)) {
      return &slot;
    }
  }
  return nullptr;
}

TierLoadId FileTier::load(const PrefixRef& held,
                          std::span<const TokenId> tokens,
                          std::vector<BlockLease> blocks,
                          OnLoaded on_loaded) {
  const auto found = walk(held, tokens, static_cast<std::uint32_t>(blocks.size()));
  BATON_CHECK(!found.empty() && found.size() == blocks.size(), "the file does not hold the prefix");
  const TierLoadId id{next_load_++};
  Load& load = loads_[id];
  std::vector<std::span<const std::byte>> places;
  for (std::size_t i = 0; i < found.size(); ++i) {
    use(found[i]);
    places.push_back(file_.slot(found[i]));
    load.copies.push_back(
        {.slot = found[i], .block = blocks[i].id(), .checksum = slots_[found[i]].checksum});
  }
  load.blocks = std::move(blocks);
  load.on_loaded = std::move(on_loaded);
  copier_.post([this,
                id,
                alive = std::weak_ptr<bool>(alive_),
                &control = control_,
                arena = kv_.arena(),
                copies = load.copies,
                places = std::move(places)] {
    std::uint32_t count = 0;
    for (; count < copies.size(); ++count) {
      to_arena(places[count], arena, copies[count].block);
      if (checksum(arena, copies[count].block) != copies[count].checksum) {
        break;
      }
    }
    control.post([this, id, alive, count] {
      if (!alive.expired()) {
        loaded(id, count);
      }
    });
  });
  return id;
}

void FileTier::loaded(TierLoadId id, std::uint32_t count) {
  const auto found = loads_.find(id);
  Load load = std::move(found->second);
  loads_.erase(found);
  if (count < load.copies.size()) {
    ++stats_.broken;
    forget(slots_[load.copies[count].slot]);
  }
  for (auto copy = load.copies.rbegin(); copy != load.copies.rend(); ++copy) {
    release(copy->slot);
  }
  if (load.on_loaded != nullptr) {
    stats_.hit_tokens += std::uint64_t{count} * kv_.layout().block_tokens;
    load.on_loaded({std::move(load.blocks), count});
  } else if (on_freed_ != nullptr) {
    load.blocks.clear();  // they go home
    on_freed_();
  }
}

void FileTier::cancel(TierLoadId id) {
  const auto found = loads_.find(id);
  if (found != loads_.end()) {
    found->second.on_loaded = nullptr;  // the blocks stay until nothing writes them
  }
}

std::optional<std::uint32_t> FileTier::take_slot() {
  if (free_.empty() && !idle_.empty()) {
    const std::uint32_t oldest = idle_.front();
    forget(slots_[oldest]);
    idle_.pop_front();
    free_.push_back(oldest);
  }
  if (free_.empty()) {
    return std::nullopt;
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  slots_[slot].place = idle_.insert(idle_.end(), slot);
  return slot;
}

void FileTier::use(std::uint32_t slot) {
  if (slots_[slot].users++ == 0) {
    idle_.erase(slots_[slot].place);
  }
}

void FileTier::release(std::uint32_t slot) {
  if (--slots_[slot].users > 0) {
    return;
  }
  if (slots_[slot].serial == 0) {
    free_.push_back(slot);  // forgotten meanwhile
  } else {
    slots_[slot].place = idle_.insert(idle_.end(), slot);
  }
}

void FileTier::forget(Slot& slot) {
  const auto index = static_cast<std::uint32_t>(&slot - slots_.data());
  const auto [begin, end] = by_name_.equal_range(slot.name);
  for (auto it = begin; it != end; ++it) {
    if (it->second == index) {
      by_name_.erase(it);
      break;
    }
  }
  by_serial_.erase(slot.serial);
  slot.serial = 0;
}

}  // namespace baton::engine
