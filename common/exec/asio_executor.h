// The real executor: a strand of a Boost.Asio io_context, and a thread that runs one. What a task
// posts runs at that task's end, without a way through the io_context; what that posts in turn goes
// through it, so that sockets and timers have their time.
//
// Owner: the composition root; both outlive whatever was given them by reference. Thread: see
// executor.h. Failure: none.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/exec/executor.h"

namespace baton {

class AsioExecutor final : public Executor {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

  explicit AsioExecutor(boost::asio::io_context& context);

  void post(Task task) override;
  void dispatch(Task task) override;
  TimerHandle call_after(Duration delay, Task task) override;
  TimePoint now() const override;
  bool is_current() const override;

  // Expires with this object. What a destroyed io_context drops may outlive its executor for a
  // moment and must not use it then.
  std::weak_ptr<const void> alive() const { return alive_; }

  // For code that opens sockets: their handlers must run on the strand, those that post much within
  // a Turn.
  const Strand& strand() const { return strand_; }

  // What is posted while it lives runs at its end. REQUIRES: on the strand.
  class Turn {
   public:
    explicit Turn(AsioExecutor& executor)
        : executor_(executor), is_outer_(!std::exchange(executor.in_turn_, true)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (is_outer_) {
        executor_.end_turn();
      }
    }

   private:
    AsioExecutor& executor_;
    const bool is_outer_;
  };
  boost::asio::io_context& context() { return context_; }

 private:
  void end_turn();

  boost::asio::io_context& context_;
  Strand strand_;
  const std::shared_ptr<const void> alive_ = std::make_shared<int>(0);
  // Of the strand:
  bool in_turn_ = false;
  bool ending_turn_ = false;
  std::size_t on_their_way_ = 0;  // tasks that the strand has posted through the io_context
  std::vector<Task> at_end_;      // of the turn
};

// An io_context with one thread that runs it and an executor on it: the control thread of a node.
// Objects that live on the strand are dropped there (`run_and_wait`) or after `stop`.
class ControlThread {
 public:
  explicit ControlThread(std::string name);
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;
  ~ControlThread();

  AsioExecutor& executor() { return executor_; }
  // Runs `task` on the strand and returns when it is done. REQUIRES: not on the strand, not
  // stopped.
  void run_and_wait(Task task);
  // Ends the thread after the task in work; tasks not begun are dropped with this object.
  // Idempotent. REQUIRES: not on the strand.
  void stop();

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  AsioExecutor executor_;
  std::jthread thread_;
};

}  // namespace baton
