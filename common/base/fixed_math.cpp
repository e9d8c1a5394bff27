// Sources: range reduction and series as in any numerical analysis text (Cody, Waite 1980); the
// single-precision exponential's polynomial is the Taylor series on [-ln2/2, ln2/2].
#include "common/base/fixed_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace baton {
namespace {

constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits: k * kLn2High is exact
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kInvLn2 = 1.44269504088896338700e+00;
constexpr double kHalfPiHigh = 1.57079632673412561417e+00;  // 33 bits
constexpr double kHalfPiLow = 6.07710050650619224932e-11;
constexpr double kInvHalfPi = 6.36619772367581382433e-01;
constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer

double power_of_two(std::int64_t exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

double nearest(double x) {
  return (x + kRound) - kRound;
}

// (-1)^n / (2n + first)!, enough for |r| < pi/4 and to spare.
constexpr std::array<double, 10> series(int first) {
  std::array<double, 10> out{};
  double factorial = 1.0;
  int next = 1;
  for (std::size_t n = 0; n < out.size(); ++n) {
    for (const int end = 2 * static_cast<int>(n) + first; next <= end; ++next) {
      factorial *= next;
    }
    out[n] = (n % 2 == 0 ? 1.0 : -1.0) / factorial;
  }
  return out;
}
constexpr std::array<double, 10> kSineSeries = series(1);
constexpr std::array<double, 10> kCosineSeries = series(0);

constexpr std::size_t kLanes = 16;  // plain loops over lanes: any vector width gives these bits
using Lanes = std::array<float, kLanes>;

// lane = e^(lane + shift)
inline void exp_lanes(Lanes& lane, float shift) {
  for (float& value : lane) {
    value = fixed_exp_lane(value + shift);
  }
}

}  // namespace

double fixed_exp(double x) {
  if (!(x >= -708.0)) {
    return 0.0;
  }
  x = std::min(x, 709.0);
  const double k = nearest(x * kInvLn2);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1.0;
  for (int n = 14; n >= 1; --n) {
    sum = 1.0 + sum * r / n;
  }
  // Two factors, so that k = 1024 does not overflow on the way.
  const auto half = static_cast<std::int64_t>(k) / 2;
  return sum * power_of_two(half) * power_of_two(static_cast<std::int64_t>(k) - half);
}

double fixed_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52U) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;
  for (int n = 23; n >= 1; n -= 2) {
    sum = 1.0 / n + s2 * sum;
  }
  const auto k = static_cast<double>(exponent);
  return k * kLn2High + (k * kLn2Low + 2.0 * s * sum);
}

void fixed_sincos(double x, double& sine, double& cosine) {
  const double k = nearest(x * kInvHalfPi);
  const double r = (x - k * kHalfPiHigh) - k * kHalfPiLow;
  const double r2 = r * r;
  double s = kSineSeries.back();
  double c = kCosineSeries.back();
  for (std::size_t n = kSineSeries.size() - 1; n-- > 0;) {
    s = kSineSeries[n] + s * r2;
    c = kCosineSeries[n] + c * r2;
  }
  s *= r;
  switch (static_cast<std::int64_t>(k) & 3) {
    case 0:
      sine = s;
      cosine = c;
      break;
    case 1:
      sine = c;
      cosine = -s;
      break;
    case 2:
      sine = -s;
      cosine = -c;
      break;
    default:
      sine = -c;
      cosine = s;
  }
}

double fixed_exp_row(const float* x, std::size_t n, float shift, float* out) {
  std::array<double, kLanes> sums{};
  Lanes lane;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    std::memcpy(lane.data(), x + i, sizeof(lane));
    exp_lanes(lane, shift);
    std::memcpy(out + i, lane.data(), sizeof(lane));
    for (std::size_t j = 0; j < kLanes; ++j) {
      sums[j] += static_cast<double>(lane[j]);
    }
  }
  if (i < n) {
    lane.fill(-1000.0F);
    std::copy_n(x + i, n - i, lane.begin());
    exp_lanes(lane, shift);
    std::copy_n(lane.begin(), n - i, out + i);
    for (std::size_t j = 0; j < n - i; ++j) {
      sums[j] += static_cast<double>(lane[j]);
    }
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) {
      sums[j] += sums[j + width];
    }
  }
  return sums[0];
}

}  // namespace baton
