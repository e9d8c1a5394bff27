#include "common/exec/asio_executor.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>

#include "common/exec/thread.h"

namespace baton {
namespace {

struct TimerState {
  TimerState(const AsioExecutor::Strand& strand, Duration delay, Task t)
      : timer(strand, delay), task(std::move(t)) {}
  boost::asio::steady_timer timer;
  Task task;
  bool pending = true;
};

class AsioTimer final : public Timer {
 public:
  explicit AsioTimer(std::shared_ptr<TimerState> state) : state_(std::move(state)) {}
  AsioTimer(const AsioTimer&) = delete;
  AsioTimer& operator=(const AsioTimer&) = delete;
  ~AsioTimer() override {
    if (state_->pending) {
      state_->pending = false;
      state_->timer.cancel();
      state_->task = nullptr;
    }
  }
  bool is_pending() const override { return state_->pending; }

 private:
  std::shared_ptr<TimerState> state_;
};

}  // namespace

AsioExecutor::AsioExecutor(boost::asio::io_context& context)
    : context_(context), strand_(boost::asio::make_strand(context)) {}

void AsioExecutor::post(Task task) {
  const bool is_own = is_current();
  // Behind what was posted before it.
  if (is_own && in_turn_ && !ending_turn_ && on_their_way_ == 0) {
    at_end_.push_back(std::move(task));
    return;
  }
  if (is_own) {
    ++on_their_way_;  // the strand's own: no other thread may so much as write it unchanged
  }
  boost::asio::post(strand_, [this, is_own, task = std::move(task)]() mutable {
    on_their_way_ -= is_own ? 1 : 0;
    const Turn turn(*this);
    task();
  });
}

void AsioExecutor::dispatch(Task task) {
  boost::asio::dispatch(strand_, [this, task = std::move(task)]() mutable {
    const Turn turn(*this);
    task();
  });
}

void AsioExecutor::end_turn() {
  ending_turn_ = true;
  for (Task& task : at_end_) {
    std::exchange(task, nullptr)();
  }
  at_end_.clear();
  ending_turn_ = false;
  in_turn_ = false;
}

TimerHandle AsioExecutor::call_after(Duration delay, Task task) {
  auto state = std::make_shared<TimerState>(strand_, delay, std::move(task));
  state->timer.async_wait([this, state](const boost::system::error_code&) {
    if (state->pending) {
      const Turn turn(*this);
      state->pending = false;
      // Moved out first: the task may drop the handle, and so this state's task.
      auto task = std::exchange(state->task, nullptr);
      task();
    }
  });
  return TimerHandle(std::make_unique<AsioTimer>(std::move(state)));
}

TimePoint AsioExecutor::now() const {
  return std::chrono::steady_clock::now();
}

bool AsioExecutor::is_current() const {
  return strand_.running_in_this_thread();
}

ControlThread::ControlThread(std::string name)
    : context_(1), guard_(context_.get_executor()), executor_(context_) {
  thread_ = std::jthread([this, name = std::move(name)] {
    set_thread_name(name);
    context_.run();
  });
}

ControlThread::~ControlThread() {
  stop();
}

void ControlThread::run_and_wait(Task task) {
  std::promise<void> done;
  executor_.post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void ControlThread::stop() {
  context_.stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace baton
