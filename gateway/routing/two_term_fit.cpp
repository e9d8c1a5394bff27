#include "gateway/routing/two_term_fit.h"

#include <algorithm>

namespace baton::gateway {

void TwoTermFit::observe(double x1, double x2, double y) {
  count_ = std::min(count_ + 1, kEnough);
  s11_ = kKeep * s11_ + x1 * x1;
  s12_ = kKeep * s12_ + x1 * x2;
  s22_ = kKeep * s22_ + x2 * x2;
  t1_ = kKeep * t1_ + x1 * y;
  t2_ = kKeep * t2_ + x2 * y;
  // Observations that all lie in one direction cannot tell the terms apart.
  constexpr double kApart = 1e-4;
  const double det = s11_ * s22_ - s12_ * s12_;
  a_ = s11_ > 0 ? t1_ / s11_ : 0;
  b_ = 0;
  if (det > kApart * s11_ * s22_) {
    const double b = (s11_ * t2_ - s12_ * t1_) / det;
    const double a = (s22_ * t1_ - s12_ * t2_) / det;
    if (a < 0) {
      a_ = 0;
      b_ = t2_ / s22_;
    } else if (b > 0) {
      a_ = a;
      b_ = b;
    }
  }
}

}  // namespace baton::gateway
