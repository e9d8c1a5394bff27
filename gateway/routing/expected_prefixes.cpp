// Invariant: whoever expects a stretch expects all before it as often at least, so a stretch that
// nobody expects has none behind it.
#include "gateway/routing/expected_prefixes.h"

#include <algorithm>
#include <utility>

namespace baton::gateway {

std::uint32_t ExpectedPrefixes::find(std::span<const std::uint64_t> chain, std::size_t at) const {
  const std::uint64_t number = index_.find(chain[at]);
  // A hash that names something else by chance, or by somebody's will, stands at another place.
  return number == 0 || stretches_[number - 1].begin != at ? kNone
                                                           : static_cast<std::uint32_t>(number - 1);
}

std::size_t ExpectedPrefixes::common_end(const Stretch& stretch,
                                         std::span<const std::uint64_t> chain) {
  // Equal hashes are equal beginnings: once two differ, all behind them do.
  std::size_t same = stretch.begin;
  std::size_t end = std::min(stretch.end, chain.size());
  while (same < end) {
    const std::size_t middle = same + (end - same) / 2;
    if ((*stretch.chain)[middle] == chain[middle]) {
      same = middle + 1;
    } else {
      end = middle;
    }
  }
  return same;
}

std::uint32_t ExpectedPrefixes::insert(Stretch stretch) {
  std::uint32_t number = 0;
  if (free_.empty()) {
    number = static_cast<std::uint32_t>(stretches_.size());
    stretches_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  index_.set((*stretch.chain)[stretch.begin], std::uint64_t{number} + 1);
  stretches_[number] = std::move(stretch);
  return number;
}

bool ExpectedPrefixes::split(std::uint32_t number, std::size_t at) {
  Stretch rest = stretches_[number];
  if (index_.find((*rest.chain)[at]) != 0) {
    return false;
  }
  rest.begin = at;
  stretches_[number].end = at;
  insert(std::move(rest));
  return true;
}

void ExpectedPrefixes::add(const Holder& holder, const Chain& chain) {
  for (std::size_t at = 0; at < chain->size();) {
    std::uint32_t number = find(*chain, at);
    if (number == kNone) {
      if (index_.find((*chain)[at]) != 0) {
        return;  // the name is taken by another chain's block
      }
      number = insert({chain, at, chain->size(), {}});
    }
    const std::size_t to = common_end(stretches_[number], *chain);
    if (to < stretches_[number].end && !split(number, to)) {
      return;
    }
    auto& counts = stretches_[number].counts;
    const auto found = std::ranges::find(counts, holder, &Count::holder);
    if (found == counts.end()) {
      counts.push_back({holder, 1});
    } else {
      ++found->requests;
    }
    at = to;
  }
}

void ExpectedPrefixes::remove(const Holder& holder, std::span<const std::uint64_t> chain) {
  for (std::size_t at = 0; at < chain.size();) {
    const std::uint32_t number = find(chain, at);
    if (number == kNone) {
      return;
    }
    Stretch& stretch = stretches_[number];
    if (common_end(stretch, chain) < stretch.end) {
      return;  // could not be split for it
    }
    const auto found = std::ranges::find(stretch.counts, holder, &Count::holder);
    if (found == stretch.counts.end()) {
      return;
    }
    at = stretch.end;
    if (--found->requests == 0) {
      stretch.counts.erase(found);
    }
    if (stretch.counts.empty()) {
      index_.set((*stretch.chain)[stretch.begin], 0);
      stretch = Stretch{};
      free_.push_back(number);
    }
  }
}

}  // namespace baton::gateway
