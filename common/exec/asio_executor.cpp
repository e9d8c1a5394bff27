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
  boost::asio::post(strand_, std::move(task));
}

void AsioExecutor::dispatch(Task task) {
  boost::asio::dispatch(strand_, std::move(task));
}

TimerHandle AsioExecutor::call_after(Duration delay, Task task) {
  auto state = std::make_shared<TimerState>(strand_, delay, std::move(task));
  state->timer.async_wait([state](const boost::system::error_code&) {
    if (state->pending) {
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
