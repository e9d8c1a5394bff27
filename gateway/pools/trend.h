// A rate that is seen through noise: how high it is now, and where it will be in a while.
//
// Two moving means, a short and a long one. While they agree within the noise, the long one is the
// answer, so that a steady load does not look like a moving one; once they part, the short one and
// the slope between the two are.
//
// Thread: plain value. Failure: none; 0 before the first observation.
#pragma once

#include <cstdint>

namespace baton::gateway {

class Trend {
 public:
  static constexpr double kShort = 8;  // observations
  static constexpr double kLong = 36;

  // The rate over one interval; intervals are of equal length.
  void observe(double rate);
  // The rate `ahead` intervals from now, at least 0.
  double at(double ahead) const;
  double short_mean() const { return short_; }
  std::uint32_t count() const { return count_; }

 private:
  bool is_moving() const;

  std::uint32_t count_ = 0;
  double short_ = 0;
  double long_ = 0;
  double variance_ = 0;  // of one observation around the short mean
};

}  // namespace baton::gateway
