// The latest changes of a prefix index, numbered from 0, for readers that follow it: each keeps the
// number of the change it reads next. It holds about as many changes as the index has blocks; a
// reader that lags further reads the whole index anew, which is less.
//
// Owner: PrefixIndex. Thread: the node's control strand. Failure: none; `holds` tells a reader that
// it lags.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace baton::engine {

class PrefixJournal {
 public:
  struct Change {
    std::uint64_t name = 0;  // of the block (common/types/prefix_hash.h)
    bool is_stored = false;  // false: removed
  };
  static constexpr std::size_t kLeast = 4096;  // changes that are kept of a small index

  // `index_blocks`: how many the index has now.
  void add(Change change, std::size_t index_blocks) {
    changes_.push_back(change);
    // Twice: whoever reads the whole index piece by piece must not be overtaken meanwhile.
    while (changes_.size() > std::max(kLeast, 2 * index_blocks)) {
      changes_.pop_front();
      ++begin_;
    }
  }
  // The number of the next change to come.
  std::uint64_t end() const { return begin_ + changes_.size(); }
  // Every change from this one on is still here.
  bool holds(std::uint64_t number) const { return number >= begin_; }
  // REQUIRES: holds(number), number < end().
  const Change& at(std::uint64_t number) const { return changes_[number - begin_]; }

 private:
  std::uint64_t begin_ = 0;  // number of the first of changes_
  std::deque<Change> changes_;
};

}  // namespace baton::engine
