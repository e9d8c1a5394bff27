#include "gateway/routing/block_table.h"

#include <utility>

namespace baton::gateway {
namespace {

constexpr std::size_t kFirstCapacity = 16;

}  // namespace

std::size_t BlockTable::place(const Segment& segment, std::uint64_t mixed, std::uint64_t hash) {
  const std::size_t last = segment.entries.size() - 1;
  std::size_t at = home(mixed, segment);
  while (segment.entries[at].value != 0 && segment.entries[at].hash != hash) {
    at = (at + 1) & last;
  }
  return at;
}

std::uint64_t BlockTable::find(std::uint64_t hash) const {
  const std::uint64_t mixed = mix(hash);
  const Segment& segment = segment_of(mixed);
  return segment.used == 0 ? 0 : segment.entries[place(segment, mixed, hash)].value;
}

void BlockTable::set(std::uint64_t hash, std::uint64_t value) {
  const std::uint64_t mixed = mix(hash);
  Segment& segment = segment_of(mixed);
  if (value == 0) {
    if (segment.used > 0) {
      erase(segment, place(segment, mixed, hash));
    }
    return;
  }
  if ((segment.used + 1) * 4 > segment.entries.size() * 3) {
    rebuild(segment,
            segment.entries.empty() ? kFirstCapacity : segment.entries.size() * 2,
            ~std::uint64_t{0});
  }
  Entry& entry = segment.entries[place(segment, mixed, hash)];
  if (entry.value == 0) {
    ++segment.used;
    ++size_;
  }
  entry = Entry{hash, value};
}

void BlockTable::erase(Segment& segment, std::size_t at) {
  if (segment.entries[at].value == 0) {
    return;
  }
  const std::size_t last = segment.entries.size() - 1;
  --segment.used;
  --size_;
  // Entries behind the gap move into it, unless that would put them before their home.
  std::size_t gap = at;
  for (std::size_t next = (gap + 1) & last; segment.entries[next].value != 0;
       next = (next + 1) & last) {
    const std::size_t from = home(mix(segment.entries[next].hash), segment);
    if (((next - from) & last) >= ((next - gap) & last)) {
      segment.entries[gap] = segment.entries[next];
      gap = next;
    }
  }
  segment.entries[gap] = Entry{};
}

void BlockTable::rebuild(Segment& segment, std::size_t capacity, std::uint64_t mask) {
  const std::vector<Entry> old = std::exchange(segment.entries, std::vector<Entry>(capacity));
  size_ -= std::exchange(segment.used, 0);
  for (const Entry& entry : old) {
    if ((entry.value & mask) != 0) {
      segment.entries[place(segment, mix(entry.hash), entry.hash)] =
          Entry{entry.hash, entry.value & mask};
      ++segment.used;
    }
  }
  size_ += segment.used;
}

void BlockTable::keep(std::size_t segment_index, std::uint64_t mask) {
  Segment& segment = segments_[segment_index];
  std::size_t left = 0;
  bool changes = false;
  for (const Entry& entry : segment.entries) {
    left += (entry.value & mask) != 0 ? 1 : 0;
    changes |= (entry.value & ~mask) != 0;
  }
  if (!changes) {
    return;
  }
  std::size_t capacity = left == 0 ? 0 : kFirstCapacity;
  while (left * 2 > capacity) {
    capacity *= 2;
  }
  rebuild(segment, capacity, mask);
}

std::size_t BlockTable::bytes() const {
  std::size_t all = sizeof(*this);
  for (const Segment& segment : segments_) {
    all += segment.entries.capacity() * sizeof(Entry);
  }
  return all;
}

}  // namespace baton::gateway
