// Invariants: a pinned entry's ancestors are pinned (a PrefixRef pins whole chains), so an unpinned
// entry's descendants are unpinned, and evicting leaves first reaches every unpinned entry.
#include "engine/kv/prefix_index.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/types/prefix_hash.h"

namespace baton::engine {
namespace {

// Where an entry of that name is found.
std::uint64_t hash_of(std::uint64_t name) {
#ifdef BATON_TORTURE
  (void)name;
  return 0;  // every lookup must survive a collision
#else
  return name;
#endif
}

}  // namespace

struct PrefixRef::Entry : EvictionItem {
  std::uint64_t name = 0;       // of the chain up to and with this block
  std::uint64_t serial = 0;     // never 0 once it is added
  bool is_kept = false;         // as mark_kept says
  Entry* parent = nullptr;      // block before; null for a first block
  std::vector<TokenId> tokens;  // [block_tokens]
  BlockLease lease;             // the block
  std::uint32_t pins = 0;       // PrefixRefs that hold it
  std::uint32_t children = 0;   // entries whose parent it is
  TimePoint idle_since{};       // by the watch's clock, while unpinned
};

PrefixRef& PrefixRef::operator=(PrefixRef&& other) noexcept {
  if (this != &other) {
    reset();
    index_ = std::exchange(other.index_, nullptr);
    is_use_ = std::exchange(other.is_use_, true);
    entries_ = std::move(other.entries_);
    other.entries_.clear();
  }
  return *this;
}

BlockId PrefixRef::block(std::uint32_t i) const {
  return entries_[i]->lease.id();
}

void PrefixRef::mark_kept(std::uint32_t i) {
  entries_[i]->is_kept = true;
}

PrefixRef::Content PrefixRef::content(std::uint32_t i) const {
  const Entry& entry = *entries_[i];
  return {.serial = entry.serial, .name = entry.name, .tokens = entry.tokens};
}

void PrefixRef::reset() {
  // Deepest first, so that a parent is the more recently used.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    index_->unpin(**entry, is_use_);
  }
  entries_.clear();
  index_ = nullptr;
  is_use_ = true;
}

PrefixIndex::PrefixIndex(std::uint32_t block_tokens, bool enabled, EvictionPolicy policy)
    : block_tokens_(block_tokens), enabled_(enabled), leaves_(policy) {}

PrefixIndex::~PrefixIndex() {
  BATON_CHECK(num_refs_ == 0, "a PrefixRef outlives its index");
}

PrefixIndex::Entry* PrefixIndex::lookup(const Entry* parent,
                                        std::uint64_t name,
                                        std::span<const TokenId> tokens,
                                        std::uint64_t* collisions) const {
  const auto [begin, end] = by_hash_.equal_range(hash_of(name));
  for (auto it = begin; it != end; ++it) {
    Entry& entry = *it->second;
    if (entry.parent == parent && std::ranges::equal(entry.tokens, tokens)) {
      return &entry;
    }
    if (collisions != nullptr) {
      ++*collisions;
    }
  }
  return nullptr;
}

PrefixRef PrefixIndex::find(std::span<const TokenId> tokens, std::uint32_t max_blocks) {
  PrefixRef ref;
  if (!enabled_) {
    return ref;
  }
  const auto full = static_cast<std::uint32_t>(tokens.size() / block_tokens_);
  const std::uint32_t wanted = std::min(full, max_blocks);
  ref.index_ = this;
  std::uint64_t name = 0;
  Entry* parent = nullptr;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    const auto block = tokens.subspan(std::size_t{i} * block_tokens_, block_tokens_);
    name = next_prefix_hash(name, block);
    Entry* entry = lookup(parent, name, block, &stats_.collisions);
    if (entry == nullptr) {
      break;
    }
    pin(*entry);
    ref.entries_.push_back(entry);
    parent = entry;
  }
  return ref;
}

void PrefixIndex::count_use(const PrefixRef& ref, std::size_t tokens) {
  if (!enabled_) {
    return;
  }
  ++stats_.lookups;
  stats_.asked_tokens += tokens;
  stats_.hit_tokens += std::uint64_t{ref.num_blocks()} * block_tokens_;
  for (Entry* entry : ref.entries_) {
    ++entry->hits;
  }
}

std::uint32_t PrefixIndex::peek(std::span<const TokenId> tokens, std::uint32_t max_blocks) const {
  if (!enabled_) {
    return 0;
  }
  std::uint64_t name = 0;
  const Entry* parent = nullptr;
  std::uint32_t found = 0;
  const auto full = static_cast<std::uint32_t>(tokens.size() / block_tokens_);
  for (; found < std::min(full, max_blocks); ++found) {
    const auto block = tokens.subspan(std::size_t{found} * block_tokens_, block_tokens_);
    name = next_prefix_hash(name, block);
    parent = lookup(parent, name, block, nullptr);
    if (parent == nullptr) {
      break;
    }
  }
  return found;
}

bool PrefixIndex::extend(PrefixRef& ref, std::span<const TokenId> tokens, BlockLease& lease) {
  BATON_CHECK(enabled_, "the prefix cache is off");
  BATON_CHECK(tokens.size() == block_tokens_, "only a full block may be shared");
  Entry* parent = ref.entries_.empty() ? nullptr : ref.entries_.back();
  const std::uint64_t name = next_prefix_hash(parent == nullptr ? 0 : parent->name, tokens);
  ref.index_ = this;
  if (Entry* known = lookup(parent, name, tokens, &stats_.collisions)) {
    ++known->hits;  // others have computed the same
    pin(*known);
    ref.entries_.push_back(known);
    return false;
  }
  BATON_CHECK(static_cast<bool>(lease), "an entry needs a block");
  auto entry = std::make_unique<Entry>();
  entry->name = name;
  entry->serial = recall_ ? recall_(parent == nullptr ? 0 : parent->serial, name, tokens) : 0;
  entry->is_kept = entry->serial != 0;
  if (!entry->is_kept) {
    entry->serial = ++last_serial_;
  }
  entry->parent = parent;
  entry->position = parent == nullptr ? 0 : parent->position + block_tokens_;
  entry->tokens.assign(tokens.begin(), tokens.end());
  entry->lease = std::move(lease);
  entry->lease.mark(BlockUse::Cached);
  if (parent != nullptr) {
    ++parent->children;
  }
  ++num_unpinned_;
  ++stats_.inserted;
  Entry& added = *entry;
  by_hash_.emplace(hash_of(name), std::move(entry));
  journal_.add({.name = name, .is_stored = true}, by_hash_.size());
  pin(added);
  ref.entries_.push_back(&added);
  return true;
}

void PrefixIndex::pin(Entry& entry) {
  if (entry.pins++ == 0) {
    --num_unpinned_;
    leaves_.unlist(entry);
  }
  ++num_refs_;
}

void PrefixIndex::unpin(Entry& entry, bool is_use) {
  if (is_use) {
    leaves_.touch(entry);
    entry.idle_since = now_ ? now_() : TimePoint{};
  }
  --num_refs_;
  if (--entry.pins == 0) {
    ++num_unpinned_;
    list_if_leaf(entry);
  }
}

PrefixRef PrefixIndex::pin_idle(std::uint32_t most, std::uint32_t longest) {
  PrefixRef ref;
  for (EvictionItem* const item : leaves_.next(most)) {
    auto* entry = static_cast<Entry*>(item);
    if (entry->is_kept || entry->position / block_tokens_ >= longest) {
      continue;
    }
    ref.index_ = this;
    ref.is_use_ = false;
    for (; entry != nullptr; entry = entry->parent) {
      pin(*entry);
      ref.entries_.push_back(entry);
    }
    std::ranges::reverse(ref.entries_);
    break;
  }
  return ref;
}

void PrefixIndex::list_if_leaf(Entry& entry) {
  if (entry.pins == 0 && entry.children == 0) {
    leaves_.list(entry);
  }
}

void PrefixIndex::watch_evictions(std::function<TimePoint()> now,
                                  std::function<void(Duration)> evicted) {
  now_ = std::move(now);
  on_evicted_ = std::move(evicted);
}

std::uint32_t PrefixIndex::evict(std::uint32_t count) {
  std::uint32_t evicted = 0;
  while (evicted < count) {
    EvictionItem* const first = leaves_.take();
    if (first == nullptr) {
      break;
    }
    auto& entry = static_cast<Entry&>(*first);
    if (now_) {
      on_evicted_(now_() - entry.idle_since);
    }
    erase(entry);
    ++evicted;
  }
  stats_.evicted += evicted;
  return evicted;
}

void PrefixIndex::erase(Entry& entry) {
  --num_unpinned_;
  if (Entry* parent = entry.parent) {
    --parent->children;
    // It keeps its own place in the order: eviction of a child is no use of the parent.
    list_if_leaf(*parent);
  }
  const std::uint64_t name = entry.name;
  const auto [begin, end] = by_hash_.equal_range(hash_of(name));
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() == &entry) {
      by_hash_.erase(it);
      journal_.add({.name = name, .is_stored = false}, by_hash_.size());
      return;
    }
  }
  BATON_CHECK(false, "an entry is missing in the hash table");
}

std::vector<std::uint64_t> PrefixIndex::names() const {
  std::vector<std::uint64_t> names;
  names.reserve(by_hash_.size());
  for (const auto& [hash, entry] : by_hash_) {
    names.push_back(entry->name);
  }
  return names;
}

void PrefixIndex::check_invariants() const {
  std::uint32_t unpinned = 0;
  std::uint32_t refs = 0;
  std::size_t leaves = 0;
  std::unordered_map<const Entry*, std::uint32_t> children;
  for (const auto& [hash, entry] : by_hash_) {
    unpinned += entry->pins == 0 ? 1 : 0;
    refs += entry->pins;
    leaves += entry->is_listed ? 1 : 0;
    if (entry->parent != nullptr) {
      ++children[entry->parent];
      BATON_CHECK(entry->parent->pins >= entry->pins, "a pinned block has an unpinned parent");
    }
  }
  for (const auto& [hash, entry] : by_hash_) {
    BATON_CHECK(children[entry.get()] == entry->children, "children were miscounted");
    BATON_CHECK(entry->is_listed == (entry->pins == 0 && entry->children == 0),
                "the eviction order is stale");
    BATON_CHECK(!entry->is_listed || leaves_.holds(*entry),
                "a leaf is missing in the eviction order");
  }
  BATON_CHECK(unpinned == num_unpinned_ && refs == num_refs_ && leaves == leaves_.num_listed(),
              "prefix index counters differ from its entries");
}

}  // namespace baton::engine
