// A few threads for work that would hold up an I/O thread: large bodies, templates, tokenizers.
//
// Owner: the composition root; whatever tasks refer to outlives it. Thread: `run` from any.
// Failure: after `stop` tasks are dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/exec/executor.h"
#include "common/exec/mailbox.h"
#include "common/exec/thread.h"

namespace baton::gateway {

class WorkPool {
 public:
  explicit WorkPool(std::uint32_t threads);
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;
  ~WorkPool();

  // To the threads in turn.
  void run(Task task);
  // Finishes what was taken and joins. Idempotent.
  void stop();

 private:
  struct Worker {
    Mailbox<Task> tasks;
    NamedThread thread;
  };
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::uint32_t> next_{0};
};

}  // namespace baton::gateway
