// A few threads for work that would hold up an I/O thread: large bodies, templates, tokenizers.
//
// Owner: the composition root; whatever tasks refer to outlives it. Thread: `run` from any.
// Failure: after `stop` tasks are dropped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "common/exec/executor.h"
#include "common/exec/thread.h"

namespace baton::gateway {

class WorkPool {
 public:
  explicit WorkPool(std::uint32_t threads);
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;
  ~WorkPool();

  // To the first thread that is free.
  void run(Task task);
  // Finishes what was taken and joins. Idempotent.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> tasks_;
  bool stopped_ = false;
  std::vector<NamedThread> workers_;
};

}  // namespace baton::gateway
