// An executor that can be held up: what is due meanwhile waits and runs, in order, once it is let
// go. So a test stops one of several processes that share an executor, as SIGSTOP does.
//
// Owner: a test; outlives what it runs. Thread: the inner executor's. Failure: none.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/exec/executor.h"

namespace baton::testing {

class GatedExecutor final : public Executor {
 public:
  explicit GatedExecutor(Executor& inner) : inner_(inner) {}
  GatedExecutor(const GatedExecutor&) = delete;
  GatedExecutor& operator=(const GatedExecutor&) = delete;
  ~GatedExecutor() override = default;

  void set_held(bool is_held) {
    is_held_ = is_held;
    for (Task& task : std::exchange(waiting_, {})) {
      post(std::move(task));
    }
  }

  void post(Task task) override {
    inner_.post([this, task = std::move(task)]() mutable { run(std::move(task)); });
  }

  TimerHandle call_after(Duration delay, Task task) override {
    auto shared = std::make_shared<Task>(std::move(task));
    auto timer = std::make_unique<Gated>();
    timer->task = shared;
    timer->inner = inner_.call_after(delay, [this, weak = std::weak_ptr<Task>(shared)] {
      run([weak] {
        if (const auto task = weak.lock()) {  // else cancelled while it waited
          Task now = std::exchange(*task, nullptr);
          now();
        }
      });
    });
    return TimerHandle(std::move(timer));
  }

  TimePoint now() const override { return inner_.now(); }
  bool is_current() const override { return inner_.is_current(); }

 private:
  struct Gated final : Timer {
    bool is_pending() const override { return *task != nullptr; }
    TimerHandle inner;
    std::shared_ptr<Task> task;  // null once it has started
  };

  void run(Task task) {
    if (is_held_) {
      waiting_.push_back(std::move(task));
    } else {
      task();
    }
  }

  Executor& inner_;
  bool is_held_ = false;
  std::vector<Task> waiting_;
};

}  // namespace baton::testing
