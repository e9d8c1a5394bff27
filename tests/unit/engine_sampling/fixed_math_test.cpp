#include "common/base/fixed_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace baton {
namespace {

TEST(FixedMath, ExpAndLogAgreeWithTheLibrary) {
  for (double x = -700; x <= 700; x += 0.37) {
    EXPECT_NEAR(fixed_exp(x) / std::exp(x), 1.0, 4e-15) << x;
    EXPECT_NEAR(fixed_log(std::exp(x)), x, 2e-15 * (1 + std::abs(x))) << x;
  }
  EXPECT_EQ(fixed_exp(0), 1.0);
  EXPECT_EQ(fixed_exp(-1e9), 0.0);
  EXPECT_TRUE(std::isfinite(fixed_exp(1e9)));
  EXPECT_EQ(fixed_log(1), 0.0);
}

TEST(FixedMath, SinesAgreeWithTheLibrary) {
  for (double x = -300; x <= 300; x += 0.013) {
    double s = 0;
    double c = 0;
    fixed_sincos(x, s, c);
    EXPECT_NEAR(s, std::sin(x), 2e-14) << x;
    EXPECT_NEAR(c, std::cos(x), 2e-14) << x;
  }
  for (double x = 1; x < 1e6; x *= 1.01) {
    double s = 0;
    double c = 0;
    fixed_sincos(x, s, c);
    EXPECT_NEAR(s, std::sin(x), 1e-10) << x;
    EXPECT_NEAR(c, std::cos(x), 1e-10) << x;
  }
}

TEST(FixedMath, ExpRowAgreesAndItsSumIsTheRowsSum) {
  std::vector<float> x;
  for (float v = -95; v <= 5; v += 0.0137F) {
    x.push_back(v);
  }
  std::vector<float> out(x.size());
  const double sum = fixed_exp_row(x.data(), x.size(), -1.5F, out.data());
  double expected = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double e = std::exp(static_cast<double>(x[i] - 1.5F));
    EXPECT_NEAR(out[i], e, 4e-7 * e + 2e-38) << x[i];
    expected += static_cast<double>(out[i]);
  }
  EXPECT_NEAR(sum, expected, 1e-9 * expected);
}

TEST(FixedMath, BitsAreTheSameInEveryBuildAndOnEveryMachine) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto mix = [&hash](auto value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    hash = (hash ^ bits) * 1099511628211ULL;
  };
  std::vector<float> x;
  for (int i = 0; i < 1003; ++i) {
    const double v = i * 0.37 - 150;
    double s = 0;
    double c = 0;
    fixed_sincos(v * 97, s, c);
    mix(s);
    mix(c);
    mix(fixed_exp(v));
    mix(fixed_log(i + 0.5));
    x.push_back(static_cast<float>(v * 0.6));
  }
  std::vector<float> out(x.size());
  mix(fixed_exp_row(x.data(), x.size(), -7.25F, out.data()));
  for (const float value : out) {
    mix(value);
  }
  EXPECT_EQ(hash, 3474458629230948395ULL);
}

}  // namespace
}  // namespace baton
