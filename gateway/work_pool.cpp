#include "gateway/work_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::gateway {

WorkPool::WorkPool(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < std::max(1U, threads); ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->thread =
        NamedThread(fmt::format("work-{}", i), [worker = workers_.back().get()](std::stop_token) {
          for (auto tasks = worker->tasks.wait_all(); !tasks.empty();
               tasks = worker->tasks.wait_all()) {
            for (Task& task : tasks) {
              task();
            }
          }
        });
  }
}

WorkPool::~WorkPool() {
  stop();
}

void WorkPool::run(Task task) {
  const std::uint32_t turn = next_.fetch_add(1, std::memory_order_relaxed);
  workers_[turn % workers_.size()]->tasks.put(std::move(task));
}

void WorkPool::stop() {
  for (auto& worker : workers_) {
    worker->tasks.close();
  }
  for (auto& worker : workers_) {
    worker->thread.join();
  }
}

}  // namespace baton::gateway
