#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace baton::kernels::cpu {
namespace {

// About 100 microseconds: longer than the gaps inside a forward pass, shorter than a scheduler's
// slice, so that a busy machine gets its cores back.
constexpr int kSpins = 4000;

void pin_to(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  // A refusal leaves the thread where the scheduler puts it, which is only slower.
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

template <class T>
bool spin_until_not(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) {
      return true;
    }
    _mm_pause();
  }
  return false;
}

}  // namespace

std::vector<int> ThreadPool::usable_core_ids() {
  std::vector<int> ids;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) {
        ids.push_back(i);
      }
    }
  }
  return ids;
}

unsigned ThreadPool::usable_cores() {
  return std::max<unsigned>(1, static_cast<unsigned>(usable_core_ids().size()));
}

ThreadPool::ThreadPool(unsigned threads, bool pin) : claims_(threads == 0 ? 0 : threads - 1) {
  const std::vector<int> cores = usable_core_ids();
  for (unsigned i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
    if (pin && i < cores.size()) {
      pin_to(workers_.back(), cores[i]);
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

bool ThreadPool::claim(unsigned part, std::uint32_t generation) {
  std::uint32_t before = generation - 1;
  return claims_[part - 1].generation.compare_exchange_strong(before, generation);
}

void ThreadPool::run_on_all(Function function, const void* context) {
  const auto parts = static_cast<unsigned>(workers_.size()) + 1;
  function_ = function;
  context_ = context;
  unfinished_.store(parts - 1, std::memory_order_relaxed);
  const std::uint32_t generation = generation_.fetch_add(1) + 1;
  // A worker first counts itself as a sleeper, then looks at generation_ once more: one of the two
  // sees the other.
  if (sleepers_.load() != 0) {
    generation_.notify_all();
  }
  function(context, 0);
  for (unsigned part = 1; part < parts; ++part) {
    if (claim(part, generation)) {
      function(context, part);
      unfinished_.fetch_sub(1);
    }
  }
  for (int i = 0; i < kSpins; ++i) {
    if (unfinished_.load(std::memory_order_acquire) == 0) {
      return;
    }
    _mm_pause();
  }
  caller_sleeps_.store(true);
  for (std::uint32_t left = unfinished_.load(); left != 0; left = unfinished_.load()) {
    unfinished_.wait(left);
  }
  caller_sleeps_.store(false);
}

void ThreadPool::work(unsigned thread) {
  std::uint32_t seen = 0;
  while (true) {
    if (!spin_until_not(generation_, seen)) {
      sleepers_.fetch_add(1);
      while (generation_.load() == seen) {
        generation_.wait(seen);
      }
      sleepers_.fetch_sub(1);
    }
    seen = generation_.load();
    if (stop_.load()) {
      return;
    }
    // A late worker finds its part taken by the caller. A claim that succeeds is of the current
    // run, which cannot end before this part does: function_ and context_ stay.
    if (!claim(thread, seen)) {
      continue;
    }
    function_(context_, thread);
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      unfinished_.notify_all();
    }
  }
}

}  // namespace baton::kernels::cpu
