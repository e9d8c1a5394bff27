// Threads that run one function together, with the caller as one of them. Between two runs that
// follow closely the workers spin; after a while without work they sleep.
//
// Thread: `run` is called by one thread at a time, the one that made the pool, and returns when all
// have finished. Failure: making the threads may throw std::system_error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace baton::kernels::cpu {

class ThreadPool {
 public:
  // `threads` counts the caller. With `pin`, worker i stays on the i-th core the process may use.
  ThreadPool(unsigned threads, bool pin);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Calls body(thread) for every thread in [0, threads()), in parallel; 0 is the caller.
  template <class Body>
  void run(const Body& body) {
    if (workers_.empty()) {
      body(0U);
      return;
    }
    run_on_all(
        [](const void* context, unsigned thread) { (*static_cast<const Body*>(context))(thread); },
        &body);
  }

  // Calls body(thread, i) for every i in [0, count), each taken by whichever thread is free.
  template <class Body>
  void for_each(std::size_t count, const Body& body) {
    if (workers_.empty() || count <= 1) {
      for (std::size_t i = 0; i < count; ++i) {
        body(0U, i);
      }
      return;
    }
    std::atomic<std::size_t> next{0};
    run([&](unsigned thread) {
      for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        body(thread, i);
      }
    });
  }

  // Cores this process may use.
  static unsigned usable_cores();

 private:
  using Function = void (*)(const void* context, unsigned thread);

  void run_on_all(Function function, const void* context);
  void work(unsigned thread);

  // Written by the caller before it raises generation_.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  bool stop_ = false;

  alignas(64) std::atomic<std::uint32_t> generation_{0};  // one more for each run
  std::atomic<std::uint32_t> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // workers still in this run
  std::atomic<bool> caller_sleeps_{false};

  std::vector<std::thread> workers_;
};

}  // namespace baton::kernels::cpu
