// An executor for tests and simulations: nothing runs until told, time moves only by `advance`, and
// the order is always the same: by due time, then by order of arrival.
//
// Thread: `post` from any thread, all else on the one thread that drives it. Failure: a run that
// does not come to rest after kMaxTasks tasks ends the process.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "common/exec/executor.h"

namespace baton {

class ManualExecutor final : public Executor {
 public:
  static constexpr std::size_t kMaxTasks = 100'000'000;

  ManualExecutor() = default;
  ManualExecutor(const ManualExecutor&) = delete;
  ManualExecutor& operator=(const ManualExecutor&) = delete;
  ~ManualExecutor() override;

  void post(Task task) override;
  TimerHandle call_after(Duration delay, Task task) override;
  TimePoint now() const override { return now_; }
  bool is_current() const override { return running_; }

  // Runs the first task that is due now. False: none is.
  bool run_one();
  // Runs everything due now, and what that posts. Returns how many tasks ran.
  std::size_t run_until_idle();
  // Moves time on, stopping at each timer on the way to run what is due.
  void advance(Duration duration);
  // Moves time to the next timer and runs what is due; false when no timer is pending.
  bool advance_to_next_timer();
  // When the next pending task is due.
  std::optional<TimePoint> next_due() const;

 private:
  friend class ManualTimer;
  struct Key {
    TimePoint due;
    std::uint64_t number;
    auto operator<=>(const Key&) const = default;
  };
  Key insert(TimePoint due, Task task);

  mutable std::mutex mutex_;  // guards queue_, number_
  std::map<Key, Task> queue_;
  std::uint64_t number_ = 0;
  TimePoint now_{std::chrono::hours(1)};  // not the epoch, so that earlier times exist
  bool running_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once destroyed, for timers
};

}  // namespace baton
