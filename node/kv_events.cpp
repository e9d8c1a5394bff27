#include "node/kv_events.h"

#include <algorithm>
#include <unordered_set>

namespace baton::node {

std::optional<wire::KvEvents> KvEventFeed::next() {
  if (!index_.enabled()) {
    return std::nullopt;
  }
  const engine::PrefixJournal& journal = index_.journal();
  wire::KvEvents events;
  if (sequence_ == 0 || !journal.holds(next_change_)) {
    events.set_reset(true);
    list_ = index_.names();
    next_change_ = journal.end();
  }
  if (!list_.empty()) {
    add_list(events);
  } else if (next_change_ < journal.end()) {
    add_changes(events);
  } else if (!events.reset()) {
    return std::nullopt;
  }
  events.set_sequence(++sequence_);
  return events;
}

void KvEventFeed::add_list(wire::KvEvents& events) {
  const std::size_t count = std::min(list_.size(), kMaxNames);
  events.mutable_stored()->Add(list_.end() - static_cast<std::ptrdiff_t>(count), list_.end());
  list_.resize(list_.size() - count);
}

void KvEventFeed::add_changes(wire::KvEvents& events) {
  const engine::PrefixJournal& journal = index_.journal();
  const std::uint64_t first = next_change_;
  next_change_ = std::min<std::uint64_t>(journal.end(), first + kMaxNames);
  // The last change of a block counts, so the newest are read first.
  std::unordered_set<std::uint64_t> told;
  for (std::uint64_t number = next_change_; number > first; --number) {
    const engine::PrefixJournal::Change& change = journal.at(number - 1);
    if (told.insert(change.name).second) {
      change.is_stored ? events.add_stored(change.name) : events.add_removed(change.name);
    }
  }
}

}  // namespace baton::node
