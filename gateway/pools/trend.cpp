#include "gateway/pools/trend.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

constexpr double kBeyondNoise = 2.5;  // standard deviations of the short mean

}  // namespace

void Trend::observe(double rate) {
  ++count_;
  const double deviation = rate - short_;
  // The first observations weigh alike.
  const auto weight = [this](double memory) { return std::max(1.0 / count_, 1 / memory); };
  if (count_ > 1) {
    const double share = std::max(1.0 / (count_ - 1), 1 / kLong);
    variance_ += share * (deviation * deviation - variance_);
  }
  short_ += weight(kShort) * deviation;
  long_ += weight(kLong) * (rate - long_);
}

bool Trend::is_moving() const {
  const double noise = std::sqrt(variance_ / (2 * kShort));
  return std::abs(short_ - long_) > kBeyondNoise * noise;
}

double Trend::at(double ahead) const {
  if (!is_moving()) {
    return long_;
  }
  // A mean of n observations is n behind a rate that moves steadily.
  const double slope = (short_ - long_) / (kLong - kShort);
  return std::max(0.0, short_ + slope * (kShort + ahead));
}

}  // namespace baton::gateway
