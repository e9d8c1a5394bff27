#include "gateway/work_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::gateway {

WorkPool::WorkPool(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < std::max(1U, threads); ++i) {
    workers_.emplace_back(fmt::format("work-{}", i), [this](std::stop_token) {
      std::unique_lock lock(mutex_);
      while (true) {
        ready_.wait(lock, [this] { return !tasks_.empty() || stopped_; });
        if (tasks_.empty()) {
          return;
        }
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // what it holds goes without the lock
        lock.lock();
      }
    });
  }
}

WorkPool::~WorkPool() {
  stop();
}

void WorkPool::run(Task task) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) {
    tasks_.push_back(std::move(task));
    ready_.notify_one();
  }
}

void WorkPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ready_.notify_all();
  for (NamedThread& worker : workers_) {
    worker.join();
  }
}

}  // namespace baton::gateway
