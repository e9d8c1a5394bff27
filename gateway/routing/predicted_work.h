// The work that was given to a prefill node and is not done, in predicted seconds. A node works on
// one prompt after another: what it has been at since the last end is taken off, up to nearly all
// of one prompt.
//
// Owner: a node of the membership. Thread: the control strand. Failure: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/exec/executor.h"

namespace baton::gateway {

class PredictedWork {
 public:
  void begin(double seconds, TimePoint now) {
    if (count_++ == 0) {
      since_ = now;
    }
    seconds_ += seconds;
  }
  // REQUIRES: begun with as many seconds.
  void end(double seconds, TimePoint now) {
    seconds_ = --count_ == 0 ? 0 : std::max(0.0, seconds_ - seconds);
    since_ = now;
  }
  double left(TimePoint now) const {
    if (count_ == 0) {
      return 0;
    }
    constexpr double kNearlyAll = 0.9;
    const double passed = std::max(0.0, std::chrono::duration<double>(now - since_).count());
    return seconds_ - std::min(passed, kNearlyAll * seconds_ / count_);
  }

 private:
  std::uint32_t count_ = 0;
  double seconds_ = 0;
  TimePoint since_{};
};

}  // namespace baton::gateway
