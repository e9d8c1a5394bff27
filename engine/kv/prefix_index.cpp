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

struct PrefixRef::Entry {
  std::uint64_t name = 0;       // of the chain up to and with this block
  Entry* parent = nullptr;      // block before; null for a first block
  std::vector<TokenId> tokens;  // [block_tokens]
  BlockLease lease;             // the block
  std::uint32_t pins = 0;       // PrefixRefs that hold it
  std::uint32_t children = 0;   // entries whose parent it is
  std::uint64_t last_use = 0;   // tick of the last pin or unpin
  bool in_leaves = false;
};

PrefixRef& PrefixRef::operator=(PrefixRef&& other) noexcept {
  if (this != &other) {
    reset();
    index_ = std::exchange(other.index_, nullptr);
    entries_ = std::move(other.entries_);
    other.entries_.clear();
  }
  return *this;
}

BlockId PrefixRef::block(std::uint32_t i) const {
  return entries_[i]->lease.id();
}

void PrefixRef::reset() {
  // Deepest first, so that a parent is the more recently used.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    index_->unpin(**entry);
  }
  entries_.clear();
  index_ = nullptr;
}

PrefixIndex::PrefixIndex(std::uint32_t block_tokens, bool enabled)
    : block_tokens_(block_tokens), enabled_(enabled) {}

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
  ++stats_.lookups;
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
  stats_.hit_blocks += ref.num_blocks();
  stats_.missed_blocks += wanted - ref.num_blocks();
  return ref;
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
    pin(*known);
    ref.entries_.push_back(known);
    return false;
  }
  BATON_CHECK(static_cast<bool>(lease), "an entry needs a block");
  auto entry = std::make_unique<Entry>();
  entry->name = name;
  entry->parent = parent;
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
  }
  ++num_refs_;
  update_leaf(entry);
}

void PrefixIndex::unpin(Entry& entry) {
  --num_refs_;
  if (--entry.pins == 0) {
    ++num_unpinned_;
  }
  update_leaf(entry);
}

void PrefixIndex::update_leaf(Entry& entry) {
  if (entry.in_leaves) {
    leaves_.erase({entry.last_use, &entry});
  }
  entry.last_use = ++tick_;
  entry.in_leaves = entry.pins == 0 && entry.children == 0;
  if (entry.in_leaves) {
    leaves_.emplace(entry.last_use, &entry);
  }
}

std::uint32_t PrefixIndex::evict(std::uint32_t count) {
  std::uint32_t evicted = 0;
  while (evicted < count && !leaves_.empty()) {
    erase(*leaves_.begin()->second);
    ++evicted;
  }
  stats_.evicted += evicted;
  return evicted;
}

void PrefixIndex::erase(Entry& entry) {
  leaves_.erase({entry.last_use, &entry});
  --num_unpinned_;
  if (Entry* parent = entry.parent) {
    --parent->children;
    // It keeps its own place in the order: eviction of a child is no use of the parent.
    if (parent->children == 0 && parent->pins == 0) {
      parent->in_leaves = true;
      leaves_.emplace(parent->last_use, parent);
    }
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
    leaves += entry->in_leaves ? 1 : 0;
    if (entry->parent != nullptr) {
      ++children[entry->parent];
      BATON_CHECK(entry->parent->pins >= entry->pins, "a pinned block has an unpinned parent");
    }
  }
  for (const auto& [hash, entry] : by_hash_) {
    BATON_CHECK(children[entry.get()] == entry->children, "children were miscounted");
    BATON_CHECK(entry->in_leaves == (entry->pins == 0 && entry->children == 0),
                "the eviction order is stale");
    BATON_CHECK(!entry->in_leaves || leaves_.contains({entry->last_use, entry.get()}),
                "a leaf is missing in the eviction order");
  }
  BATON_CHECK(unpinned == num_unpinned_ && refs == num_refs_ && leaves == leaves_.size(),
              "prefix index counters differ from its entries");
}

}  // namespace baton::engine
