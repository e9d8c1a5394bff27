#include "engine/kv/eviction.h"

#include <algorithm>
#include <iterator>

namespace baton::engine {

void EvictionOrder::touch(EvictionItem& item) {
  const std::uint64_t cost = policy_.attention_tokens + item.position;
  item.priority = clock_ + policy_.grace + std::min(item.hits, policy_.most_hits) * cost;
  item.last_use = ++uses_;
}

void EvictionOrder::list(EvictionItem& item) {
  item.is_listed = true;
  listed_.insert(&item);
}

void EvictionOrder::unlist(EvictionItem& item) {
  if (item.is_listed) {
    listed_.erase(&item);
    item.is_listed = false;
  }
}

std::vector<EvictionItem*> EvictionOrder::next(std::size_t most) const {
  const auto end =
      std::next(listed_.begin(), static_cast<std::ptrdiff_t>(std::min(most, listed_.size())));
  return {listed_.begin(), end};
}

EvictionItem* EvictionOrder::take() {
  if (listed_.empty()) {
    return nullptr;
  }
  EvictionItem* const first = *listed_.begin();
  unlist(*first);
  clock_ = std::max(clock_, first->priority);
  return first;
}

}  // namespace baton::engine
