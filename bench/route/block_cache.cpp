#include "bench/route/block_cache.h"

#include <utility>

namespace baton::bench {

std::size_t BlockCache::held(std::span<const std::uint64_t> chain) const {
  std::size_t count = 0;
  while (count < chain.size() && places_.contains(chain[count])) {
    ++count;
  }
  return count;
}

void BlockCache::use(std::span<const std::uint64_t> chain) {
  for (std::size_t i = chain.size(); i-- > 0;) {
    const auto found = places_.find(chain[i]);
    if (found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
    } else {
      order_.push_front(chain[i]);
      places_.emplace(chain[i], order_.begin());
      before_.try_emplace(chain[i], false);
    }
  }
  shrink();
}

void BlockCache::resize(std::size_t capacity) {
  capacity_ = capacity;
  shrink();
}

void BlockCache::shrink() {
  while (order_.size() > capacity_) {
    before_.try_emplace(order_.back(), true);
    places_.erase(order_.back());
    order_.pop_back();
  }
}

BlockCache::Changes BlockCache::take_changes() {
  Changes changes;
  for (const auto& [block, was_here] : std::exchange(before_, {})) {
    const bool is_here = places_.contains(block);
    if (is_here != was_here) {
      (is_here ? changes.stored : changes.removed).push_back(block);
    }
  }
  return changes;
}

}  // namespace baton::bench
