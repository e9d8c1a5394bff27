#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace baton::kernels {
namespace {

TEST(Half, EveryHalfSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half) << bits;
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(half_to_float(0x3C00), 1.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0xFBFF), -65504.0F);
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3C00);             // a tie: down to even
  EXPECT_EQ(float_to_half(1.0F + 0x3p-11F), 0x3C02);             // a tie: up to even
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F + 0x1p-20F), 0x3C01);  // above the tie
  EXPECT_EQ(float_to_half(65519.0F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);
  EXPECT_EQ(float_to_half(0x1.8p-25F), 0x0001);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Half, RandomFloatsGoToOneOfTheirTwoNeighboursTheNearer) {
  std::mt19937 rng(7);
  std::uniform_real_distribution<float> exponent(-26.0F, 16.0F);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(rng));
    const std::uint16_t half = float_to_half(x);
    if (half >= 0x7C00) {
      continue;
    }
    const double error = std::fabs(half_to_float(half) - static_cast<double>(x));
    const double up = std::fabs(half_to_float(half + 1) - static_cast<double>(x));
    EXPECT_LE(error, up) << x;
    if (half > 0) {
      const double down = std::fabs(half_to_float(half - 1) - static_cast<double>(x));
      EXPECT_LE(error, down) << x;
    }
  }
}

}  // namespace
}  // namespace baton::kernels
