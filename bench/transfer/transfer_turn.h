// One timed turn of a transfer, and what several turns say together; and where the two processes
// run: each on its half of the processors, so that no run depends on where the system happens to
// put them.
//
// Thread: the caller's. Failure: none; where affinity cannot be set the system decides.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <vector>

#include "bench/spread.h"

namespace baton::bench {

struct Turn {
  double seconds = 0;
  double cpu_seconds = 0;  // of both processes
};

class Turns {
 public:
  void add(Turn turn) {
    seconds_.push_back(turn.seconds);
    cpu_seconds_.push_back(turn.cpu_seconds);
  }
  bool empty() const { return seconds_.empty(); }
  double seconds() const { return median(seconds_); }
  double cpu_seconds() const { return median(cpu_seconds_); }
  // From the first to the third quartile, as a share of the median.
  double spread() const {
    return empty() ? 0 : (quantile(seconds_, 0.75) - quantile(seconds_, 0.25)) / seconds();
  }

 private:
  std::vector<double> seconds_;
  std::vector<double> cpu_seconds_;
};

// Processor time of this process so far.
inline double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

enum class Half { First, Second };

// Keeps the calling thread, and those it starts, on one half of the processors it may use.
class OnHalf {
 public:
  explicit OnHalf(Half half) {
    if (::sched_getaffinity(0, sizeof(before_), &before_) != 0 || CPU_COUNT(&before_) < 2) {
      CPU_ZERO(&before_);
      return;
    }
    cpu_set_t own;
    CPU_ZERO(&own);
    const int first = CPU_COUNT(&before_) / 2;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_) && (seen++ < first) == (half == Half::First)) {
        CPU_SET(cpu, &own);
      }
    }
    ::sched_setaffinity(0, sizeof(own), &own);
  }
  ~OnHalf() {
    if (CPU_COUNT(&before_) > 0) {
      ::sched_setaffinity(0, sizeof(before_), &before_);
    }
  }
  OnHalf(const OnHalf&) = delete;
  OnHalf& operator=(const OnHalf&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace baton::bench
