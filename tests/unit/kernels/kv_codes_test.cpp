// Rounding to codes, against the definitions of the formats.
#include "kernels/kv_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace baton::kernels {
namespace {

// From the definition: sign, four bits of exponent with bias 7, three of mantissa.
double e4m3_value(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15U);
  const double fraction = code & 7U;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

// The nearest code, the even one of two.
unsigned nearest_code(double value) {
  unsigned best = 0;
  for (unsigned code = 0; code < 0x7F; ++code) {
    const double now = std::fabs(e4m3_value(code) - std::fabs(value));
    const double before = std::fabs(e4m3_value(best) - std::fabs(value));
    if (now < before || (now == before && code % 2 == 0)) {
      best = code;
    }
  }
  return best | (std::signbit(value) ? 0x80U : 0U);
}

TEST(KvCodes, E4m3CodesMeanWhatTheFormatSays) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7FU) == 0x7FU) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(value, e4m3_value(code)) << code;
    EXPECT_EQ(float_to_e4m3(value), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7E), kLargestE4m3);
}

TEST(KvCodes, NumbersBecomeTheNearestE4m3) {
  std::mt19937 rng(31);
  std::uniform_real_distribution<float> exponent(-14.0F, 9.0F);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(rng)) * (i % 2 == 0 ? 1.0F : -1.0F);
    if (std::fabs(x) <= kLargestE4m3) {
      ASSERT_EQ(float_to_e4m3(x), nearest_code(x)) << x;
    }
  }
  for (unsigned code = 0; code < 0x7E; ++code) {  // ties, and their neighbours
    const auto middle = static_cast<float>((e4m3_value(code) + e4m3_value(code + 1)) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1000.0F)}) {
      EXPECT_EQ(float_to_e4m3(x), nearest_code(x)) << x;
      EXPECT_EQ(float_to_e4m3(-x), nearest_code(x) | 0x80U) << x;
    }
  }
  EXPECT_EQ(float_to_e4m3(1e30F), 0x7E);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
}

TEST(KvCodes, ARowsLargestElementGetsTheLargestCode) {
  std::mt19937 rng(32);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {1U, 16U, 20U, 64U, 256U}) {
    std::vector<float> x(n);
    for (float& element : x) {
      element = normal(rng) * 1e3F;
    }
    std::vector<std::int8_t> ints(n);
    std::vector<std::int16_t> shorts(n);
    std::vector<std::uint8_t> floats(n);
    const float short_scale = to_int16(x.data(), n, shorts.data());
    const float int_scale = to_int8(x.data(), n, ints.data());
    const float float_scale = to_e4m3(x.data(), n, floats.data());
    int largest = 0;
    int largest_short = 0;
    for (std::size_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(static_cast<int>(ints[i])));
      largest_short = std::max(largest_short, std::abs(static_cast<int>(shorts[i])));
      EXPECT_NEAR(static_cast<float>(ints[i]) * int_scale, x[i], 0.501F * int_scale);
      EXPECT_NEAR(static_cast<float>(shorts[i]) * short_scale, x[i], 0.502F * short_scale);
      // Half a step of three bits of mantissa, and half the smallest number.
      EXPECT_NEAR(e4m3_to_float(floats[i]) * float_scale,
                  x[i],
                  std::fabs(x[i]) / 15.9F + 0.0011F * float_scale);
    }
    EXPECT_EQ(largest, 127);
    EXPECT_EQ(largest_short, 4095);
  }
}

TEST(KvCodes, RowsWithoutNumbersKeepThatToThemselves) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::int8_t ints[3];
  std::int16_t shorts[3];
  std::uint8_t floats[3];
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    const float row[] = {1.0F, bad, -2.0F};
    EXPECT_TRUE(std::isnan(to_int8(row, 3, ints)));
    EXPECT_TRUE(std::isnan(to_int16(row, 3, shorts)));
    EXPECT_TRUE(std::isnan(to_e4m3(row, 3, floats)));
  }
  const float nothing[] = {0.0F, -0.0F, 1e-42F};
  EXPECT_EQ(to_int8(nothing, 3, ints), 0.0F);
  EXPECT_EQ(ints[2], 0);
  EXPECT_EQ(to_int16(nothing, 3, shorts), 0.0F);
  EXPECT_EQ(shorts[2], 0);
  EXPECT_EQ(to_e4m3(nothing, 3, floats), 0.0F);
}

}  // namespace
}  // namespace baton::kernels
