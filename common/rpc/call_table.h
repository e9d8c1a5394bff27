// The open calls of one channel: numbers them, times them out, and matches answers. One timer
// serves all of them: most are answered long before, and a timer for each would cost more than the
// call.
//
// Owner: a channel. Thread: the executor's strand. Failure: an answer to no open call is ignored:
// it came after its timeout.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "common/exec/executor.h"
#include "common/rpc/channel.h"

namespace baton {

class CallTable {
 public:
  explicit CallTable(Executor& executor) : executor_(executor) {}
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;
  ~CallTable() = default;

  // Returns the call's number, never 0.
  std::uint64_t open(std::chrono::milliseconds timeout, Channel::AnswerHandler handler);
  // Runs the handler of the call that `frame` answers; a Refusal becomes its Error.
  void finish(wire::Frame frame);
  // Runs one call's handler with the error.
  void fail_one(std::uint64_t number, const Error& error);
  // Runs every open handler with the error. REQUIRES: the owner stays alive meanwhile.
  void fail_all(const Error& error);
  // Drops every handler unrun.
  void forget_all();
  std::size_t size() const { return calls_.size(); }

 private:
  struct Deadline {
    TimePoint at;
    std::uint64_t number = 0;
    TimePoint began;
    auto operator<=>(const Deadline&) const = default;
  };
  Channel::AnswerHandler take(std::uint64_t number);
  // For the first deadline of an open call.
  void arm();
  void expire();

  Executor& executor_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Channel::AnswerHandler> calls_;
  // The earliest first; those of calls that were answered stay until they come to the front.
  std::priority_queue<Deadline, std::vector<Deadline>, std::greater<>> deadlines_;
  TimerHandle timer_;
  TimePoint armed_for_;
};

}  // namespace baton
