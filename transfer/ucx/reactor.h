// The data thread: runs commands that other threads post, progresses the UCX workers, and sleeps on
// descriptors when there is nothing to do.
//
//   loop: commands, progress, turn; when nothing happened for a short while: arm, sleep until a
//   worker's descriptor, a command or the timer wakes it.
//
// Owner: UcxTransport. Thread: `post` from any; the rest says. Failure: none; when the system
// refuses descriptors, creating one says so.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/base/error.h"

namespace baton::transfer {

class Reactor {
 public:
  using Command = std::move_only_function<void()>;
  struct Hooks {
    std::function<unsigned()> progress;  // every UCX worker; what ucp_worker_progress says
    std::function<bool()> arm;           // every worker; false: there is work already
    std::function<bool()> turn;          // after progress; true: it did something
    std::function<bool()> has_traffic;   // true: spin a little before sleeping
    std::function<void()> shut_down;     // last thing on the thread
  };

  static Result<std::unique_ptr<Reactor>> create();
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  void start(Hooks hooks);
  // Runs `command` on the thread; once the thread has ended, inside this call.
  void post(Command command);
  // Makes the thread turn once more; nothing piles up while it does not.
  void poke();
  // Wakes the thread when `fd` becomes readable, and runs `readable` if there is one, until it is
  // unwatched. On the thread.
  Status watch(int fd, std::function<void()> readable);
  void unwatch(int fd);
  // Ends the thread after shut_down. Idempotent. REQUIRES: not on the thread.
  void stop();
  std::uint64_t loops() const { return loops_.load(std::memory_order_relaxed); }

 private:
  Reactor(int wake_fd, int poll_fd) : wake_fd_(wake_fd), poll_fd_(poll_fd) {}
  void run();
  bool run_commands();
  void sleep();
  // Waits on the descriptors and runs the watchers of those that are readable.
  void poll(int timeout_ms);

  const int wake_fd_;  // eventfd, written by post() while the thread sleeps
  const int poll_fd_;  // epoll over wake_fd_ and what is watched
  Hooks hooks_;
  std::thread thread_;
  std::atomic<std::uint64_t> loops_ = 0;
  std::vector<Command> running_;                            // reactor's
  std::unordered_map<int, std::function<void()>> watched_;  // reactor's

  std::mutex mutex_;  // guards the rest
  std::vector<Command> commands_;
  bool is_sleeping_ = false;
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::recursive_mutex after_mutex_;  // commands after the end run one at a time
};

}  // namespace baton::transfer
