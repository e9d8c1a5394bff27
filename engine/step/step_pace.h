// How long steps take of late, smoothed. A step during which the process was held up (stopped,
// swapped out) says nothing of the next ones: it counts as a slow step, not as what it took.
//
// Thread: plain value. Failure: none.
#pragma once

#include <algorithm>

namespace baton::engine {

class StepPace {
 public:
  void observe(double seconds) {
    constexpr double kMost = 8;  // of the pace so far
    constexpr double kNew = 0.1;
    seconds_ = seconds_ == 0 ? seconds
                             : (1 - kNew) * seconds_ + kNew * std::min(seconds, kMost * seconds_);
  }
  double seconds() const { return seconds_; }  // 0 before the first step

 private:
  double seconds_ = 0;
};

}  // namespace baton::engine
