#include "common/exec/manual_executor.h"

#include "common/base/check.h"

namespace baton {

class ManualTimer final : public Timer {
 public:
  ManualTimer(ManualExecutor& executor, ManualExecutor::Key key)
      : executor_(executor), key_(key), alive_(executor.alive_) {}
  ManualTimer(const ManualTimer&) = delete;
  ManualTimer& operator=(const ManualTimer&) = delete;
  ~ManualTimer() override {
    if (!*alive_) {
      return;
    }
    // The task's destructor may cancel other timers: it runs outside the lock.
    decltype(executor_.queue_)::node_type cancelled;
    const std::lock_guard lock(executor_.mutex_);
    cancelled = executor_.queue_.extract(key_);
  }
  bool is_pending() const override {
    if (!*alive_) {
      return false;
    }
    const std::lock_guard lock(executor_.mutex_);
    return executor_.queue_.contains(key_);
  }

 private:
  ManualExecutor& executor_;
  const ManualExecutor::Key key_;
  const std::shared_ptr<bool> alive_;
};

ManualExecutor::~ManualExecutor() {
  // What a dropped task drops may post once more.
  while (true) {
    std::map<Key, Task> rest;
    {
      const std::lock_guard lock(mutex_);
      rest.swap(queue_);
    }
    if (rest.empty()) {
      break;
    }
  }
  *alive_ = false;
}

ManualExecutor::Key ManualExecutor::insert(TimePoint due, Task task) {
  const std::lock_guard lock(mutex_);
  const Key key{due, number_++};
  queue_.emplace(key, std::move(task));
  return key;
}

void ManualExecutor::post(Task task) {
  // Before every timer, whatever the clock says at the moment of posting.
  insert(TimePoint::min(), std::move(task));
}

TimerHandle ManualExecutor::call_after(Duration delay, Task task) {
  const auto key = insert(now_ + std::max(delay, Duration::zero()), std::move(task));
  return TimerHandle(std::make_unique<ManualTimer>(*this, key));
}

bool ManualExecutor::run_one() {
  std::map<Key, Task>::node_type node;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty() || queue_.begin()->first.due > now_) {
      return false;
    }
    node = queue_.extract(queue_.begin());
  }
  running_ = true;
  node.mapped()();
  running_ = false;
  return true;
}

std::size_t ManualExecutor::run_until_idle() {
  std::size_t count = 0;
  while (run_one()) {
    BATON_CHECK(++count < kMaxTasks, "tasks keep posting tasks");
  }
  return count;
}

void ManualExecutor::advance(Duration duration) {
  const auto end = now_ + duration;
  run_until_idle();
  for (auto due = next_due(); due && *due <= end; due = next_due()) {
    now_ = std::max(now_, *due);
    run_until_idle();
  }
  now_ = end;
}

bool ManualExecutor::advance_to_next_timer() {
  run_until_idle();
  const auto due = next_due();
  if (!due) {
    return false;
  }
  now_ = std::max(now_, *due);
  run_until_idle();
  return true;
}

std::optional<TimePoint> ManualExecutor::next_due() const {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) {
    return std::nullopt;
  }
  return queue_.begin()->first.due;
}

}  // namespace baton
