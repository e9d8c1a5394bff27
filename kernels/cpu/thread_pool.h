// Threads that run one function together, with the caller as one of them. A run has one part a
// thread; when the caller has finished its own, it takes parts that no worker has begun, so that a
// worker whose core is busy elsewhere holds nothing up. Between two runs that follow closely the
// workers spin; after a while without work they sleep.
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

  // Calls body(part) for every part in [0, threads()), in parallel, each once.
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

  // Calls body(part, i) for every i in [0, count), each taken by whichever part is free. Calls with
  // equal `part` follow each other.
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
  static std::vector<int> usable_core_ids();

 private:
  using Function = void (*)(const void* context, unsigned thread);

  void run_on_all(Function function, const void* context);
  void work(unsigned thread);
  bool claim(unsigned part, std::uint32_t generation);

  // Written by the caller before it raises generation_.
  Function function_ = nullptr;
  const void* context_ = nullptr;

  // The last run in which a part was begun; who moves it on to the current one owns the part.
  struct alignas(64) Claim {
    std::atomic<std::uint32_t> generation{0};
  };
  std::vector<Claim> claims_;  // one a worker

  alignas(64) std::atomic<std::uint32_t> generation_{0};  // one more for each run
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // workers' parts not done in this run
  std::atomic<bool> caller_sleeps_{false};

  std::vector<std::thread> workers_;
};

}  // namespace baton::kernels::cpu
