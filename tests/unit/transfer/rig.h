// Two transports, one that sends and one that receives, over a data path that the test names: the
// in-memory one, UCX over tcp, UCX over shared memory. Waits end on conditions, with a generous
// limit that only a hang reaches.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_transport.h"
#include "tests/unit/transfer/arena.h"
#include "tests/unit/transfer/paths.h"
#include "transfer/message.h"
#include "transfer/transport.h"

namespace baton::testing {

constexpr std::chrono::seconds kHang{60};

// A value that another thread will give once.
template <class T>
class Promised {
 public:
  std::function<void(T)> setter() {
    return [state = state_](T value) {
      const std::lock_guard lock(state->mutex);
      state->value.emplace(std::move(value));
      ++state->times;
      state->ready.notify_all();
    };
  }
  // The value, or nothing after a hang.
  std::optional<T> wait(std::chrono::milliseconds limit = kHang) {
    std::unique_lock lock(state_->mutex);
    state_->ready.wait_for(lock, limit, [&] { return state_->value.has_value(); });
    return state_->value;
  }
  bool is_set() const {
    const std::lock_guard lock(state_->mutex);
    return state_->value.has_value();
  }
  int times() const {
    const std::lock_guard lock(state_->mutex);
    return state_->times;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<T> value;
    int times = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class Done {
 public:
  std::function<void()> setter() {
    return [set = value_.setter()] { set(true); };
  }
  bool wait(std::chrono::milliseconds limit = kHang) { return value_.wait(limit).has_value(); }
  bool is_set() const { return value_.is_set(); }
  int times() const { return value_.times(); }

 private:
  Promised<bool> value_;
};

// Polls a condition that has no callback (a counter). False after a hang.
bool eventually(const std::function<bool()>& condition);

// Sends bytes as they are, like a peer that does not keep the rules.
class HostilePeer {
 public:
  virtual ~HostilePeer() = default;
  // Returns when the operation is over on this side.
  virtual void send(std::span<const std::byte> header, std::span<const std::byte> bytes) = 0;
  // What a writer that puts would say. Only over paths of UCX.
  virtual void say(std::span<const std::byte> note) = 0;
  // A message under another of UCX's numbers.
  virtual void send_as(unsigned number, std::span<const std::byte> bytes) = 0;
};

class Rig {
 public:
  virtual ~Rig() = default;
  virtual std::unique_ptr<transfer::Transport> make(const std::string& name,
                                                    KvArenaView arena,
                                                    std::size_t window = std::size_t{8} << 20) = 0;
  virtual std::unique_ptr<HostilePeer> make_hostile(transfer::Transport& target) = 0;
  // What LeaseReceiver::Done::transport says.
  virtual std::string lane() const = 0;
};

// "fake", or a name as paths.h says.
std::unique_ptr<Rig> make_rig(const std::string& kind);

LeaseId random_lease();
KvGrant make_grant(LeaseId lease, Epoch epoch, const KvLayout& layout, std::vector<BlockRun> runs);

}  // namespace baton::testing
