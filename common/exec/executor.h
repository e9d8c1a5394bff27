// Where code runs and what time it is. Logic classes take an Executor&, never an Asio type or a
// clock, so that the same code runs on a control thread, in a unit test and in a simulation.
//
// All tasks of one executor run one after another, never at the same time: this is the control
// strand of a process.
//
// Owner: the composition root. Thread: `post`, `dispatch` and `now` from any thread; `call_after`,
// and cancelling or dropping a TimerHandle, on the executor's strand or while it does not run.
// Failure: none.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace baton {

using Task = std::move_only_function<void()>;
using Duration = std::chrono::steady_clock::duration;
using TimePoint = std::chrono::steady_clock::time_point;

// One pending timer as its executor knows it. Dropping it cancels.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual bool is_pending() const = 0;
};

// The right to a pending call: dropping or cancelling it means the task will not run. A task may
// drop the handle that started it.
class TimerHandle {
 public:
  TimerHandle() = default;  // holds nothing
  explicit TimerHandle(std::unique_ptr<Timer> timer) : timer_(std::move(timer)) {}

  void cancel() { timer_.reset(); }
  // True until the task has started.
  bool is_pending() const { return timer_ != nullptr && timer_->is_pending(); }

 private:
  std::unique_ptr<Timer> timer_;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` later, after those posted before it; never inside this call.
  virtual void post(Task task) = 0;
  // The same, or inside this call where the strand is free and this thread runs it: for what a
  // caller does last.
  virtual void dispatch(Task task) { post(std::move(task)); }
  // Runs `task` once `delay` has passed, unless the handle is gone by then.
  [[nodiscard]] virtual TimerHandle call_after(Duration delay, Task task) = 0;
  virtual TimePoint now() const = 0;
  // True inside a task of this executor.
  virtual bool is_current() const = 0;
};

}  // namespace baton
