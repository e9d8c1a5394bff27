// SIGINT, SIGTERM and SIGHUP as something to poll instead of something that interrupts.
//
// Owner: a command's run function, made before any thread. Thread: any may poll and read.
// Failure: without a signalfd the signals keep their default effect.
#pragma once

#include <optional>

namespace baton::cli {

class SignalWatch {
 public:
  SignalWatch();  // blocks the signals for this thread and those started later
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_; }
  // A signal that came, if one did.
  std::optional<int> take();

 private:
  int fd_ = -1;
};

}  // namespace baton::cli
