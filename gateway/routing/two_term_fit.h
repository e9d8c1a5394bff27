// Learns a and b of y = a·x1 + b·x2, neither below 0, by least squares in which older observations
// count less. For times of computing: a for each token, b for each pair of tokens that meet in
// attention; or a for each step, b for each sequence in it.
//
// Thread: plain value. Failure: none; `is_known` is false until there are enough observations.
#pragma once

#include <cstdint>

namespace baton::gateway {

class TwoTermFit {
 public:
  void observe(double x1, double x2, double y);
  bool is_known() const { return count_ >= kEnough; }
  double a() const { return a_; }
  double b() const { return b_; }

 private:
  static constexpr std::uint32_t kEnough = 4;
  static constexpr double kKeep = 0.97;  // of the weight of what was observed before

  std::uint32_t count_ = 0;
  double s11_ = 0;
  double s12_ = 0;
  double s22_ = 0;
  double t1_ = 0;
  double t2_ = 0;
  double a_ = 0;
  double b_ = 0;
};

}  // namespace baton::gateway
