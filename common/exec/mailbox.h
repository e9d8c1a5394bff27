// Hands values from any thread to one thread that waits for them, in order.
//
// Thread: `put`, `close` and `size` from any thread; `take*` by the one reader. Failure: a full or
// closed mailbox refuses the value and says so.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

namespace baton {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t limit = std::numeric_limits<std::size_t>::max()) : limit_(limit) {}

  // False: full or closed; the value is dropped.
  bool put(T value) {
    const std::lock_guard lock(mutex_);
    if (closed_ || values_.size() >= limit_) {
      return false;
    }
    values_.push_back(std::move(value));
    // Inside the lock: whoever takes the last value may destroy the mailbox.
    ready_.notify_one();
    return true;
  }

  // Everything that is there now, possibly nothing.
  std::vector<T> take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(values_, {});
  }

  // Waits for at least one value; empty only once closed and drained.
  std::vector<T> wait_all() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !values_.empty() || closed_; });
    return std::exchange(values_, {});
  }

  // The same with a limit on the wait; may be empty when it has passed.
  template <class Rep, class Period>
  std::vector<T> wait_all_for(std::chrono::duration<Rep, Period> limit) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, limit, [this] { return !values_.empty() || closed_; });
    return std::exchange(values_, {});
  }

  // Wakes the reader; what is inside can still be taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.notify_all();
  }

  bool is_closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable ready_;
  std::vector<T> values_;
  bool closed_ = false;
};

}  // namespace baton
