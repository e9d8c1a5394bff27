// A map from the hash of a block to 64 bits that are not all 0; 16 bytes an entry and no
// allocation of its own. It is cut in 256 segments that grow and are cleaned one by one, so that no
// call takes long however large the map is.
//
// Owner: PrefixMap, ExpectedPrefixes. Thread: its owner's. Failure: none. Hashes are mixed with a
// number drawn by the owner, so that a client who chooses them cannot make them collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::gateway {

class BlockTable {
 public:
  static constexpr std::size_t kSegments = 256;

  explicit BlockTable(std::uint64_t mixer) : mixer_(mixer | 1U) {}

  // 0: not there.
  std::uint64_t find(std::uint64_t hash) const;
  // 0 removes it.
  void set(std::uint64_t hash, std::uint64_t value);
  // Puts `change(value)` in the place of a value (0: not there) and gives it; looks once where
  // `find` and `set` would look twice.
  template <class Change>
  std::uint64_t update(std::uint64_t hash, Change change) {
    const std::uint64_t mixed = mix(hash);
    Segment& segment = segment_of(mixed);
    if (segment.used > 0) {
      const std::size_t at = place(segment, mixed, hash);
      if (std::uint64_t& held = segment.entries[at].value; held != 0) {
        const std::uint64_t value = change(held);
        if (value == 0) {
          erase(segment, at);
        } else {
          held = value;
        }
        return value;
      }
    }
    const std::uint64_t value = change(std::uint64_t{0});
    if (value != 0) {
      set(hash, value);
    }
    return value;
  }
  // Leaves of each value in a segment only the bits of `mask`.
  void keep(std::size_t segment, std::uint64_t mask);

  std::size_t size() const { return size_; }
  std::size_t bytes() const;

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint64_t value = 0;  // 0: free
  };
  // Open addressing with linear probing; a removal closes the gap.
  struct Segment {
    std::vector<Entry> entries;  // a power of two, at most three quarters taken; or none
    std::size_t used = 0;
  };

  std::uint64_t mix(std::uint64_t hash) const {
    const std::uint64_t mixed = (hash ^ (hash >> 32U)) * mixer_;
    return mixed ^ (mixed >> 31U);
  }
  static std::size_t home(std::uint64_t mixed, const Segment& segment) {
    return static_cast<std::size_t>(mixed) & (segment.entries.size() - 1);
  }
  Segment& segment_of(std::uint64_t mixed) { return segments_[mixed >> 56U]; }
  const Segment& segment_of(std::uint64_t mixed) const { return segments_[mixed >> 56U]; }
  // Where the hash is, or the free entry where it would be. REQUIRES: the segment has entries.
  static std::size_t place(const Segment& segment, std::uint64_t mixed, std::uint64_t hash);
  void rebuild(Segment& segment, std::size_t capacity, std::uint64_t mask);
  void erase(Segment& segment, std::size_t at);

  const std::uint64_t mixer_;
  std::array<Segment, kSegments> segments_;
  std::size_t size_ = 0;
};

}  // namespace baton::gateway
