#include "tests/unit/kernels/random_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace baton::kernels::testing {
namespace {

unsigned u8(const std::byte* p) {
  return std::to_integer<unsigned>(*p);
}
unsigned u16(const std::byte* p) {
  return u8(p) | (u8(p + 1) << 8);
}

// From the definition of the format, not by bit tricks.
double half_value(unsigned half) {
  const int exponent = static_cast<int>((half >> 10) & 31);
  const double fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

double k_element(DType dtype, const std::byte* block, std::size_t i) {
  const std::size_t group = i / 32;
  const std::byte* packed = block + 4;
  unsigned scale;
  unsigned min;
  if (group < 4) {
    scale = u8(packed + group) % 64;
    min = u8(packed + 4 + group) % 64;
  } else {
    scale = u8(packed + 4 + group) % 16 + u8(packed + group - 4) / 64 * 16;
    min = u8(packed + 4 + group) / 16 + u8(packed + group) / 64 * 16;
  }
  const std::byte* nibbles = block + (dtype == DType::Q4_K ? 16 : 48);
  const unsigned pair = u8(nibbles + i / 64 * 32 + i % 32);
  unsigned code = i % 64 < 32 ? pair % 16 : pair / 16;
  if (dtype == DType::Q5_K) {
    code += 16 * (u8(block + 16 + i % 32) >> group & 1U);
  }
  return half_value(u16(block)) * scale * code - half_value(u16(block + 2)) * min;
}

double q6_element(const std::byte* block, std::size_t i) {
  const std::size_t half = i / 128;
  const std::size_t quarter = i % 128 / 32;
  const std::size_t column = i % 32;
  const unsigned pair = u8(block + half * 64 + (quarter % 2) * 32 + column);
  const unsigned low = quarter < 2 ? pair % 16 : pair / 16;
  const unsigned top = u8(block + 128 + half * 32 + column) >> (2 * quarter) & 3U;
  const auto scale = static_cast<std::int8_t>(u8(block + 192 + i / 16));
  return half_value(u16(block + 208)) * scale * (static_cast<int>(low + 16 * top) - 32);
}

void put_scale(std::byte* p, std::mt19937& rng, float size) {
  std::uniform_real_distribution<float> value(-size, size);
  const std::uint16_t half = float_to_half(value(rng));
  std::memcpy(p, &half, sizeof(half));
}

}  // namespace

RandomWeight random_weight(DType dtype, std::size_t rows, std::size_t cols, std::mt19937& rng) {
  RandomWeight weight{dtype, rows, cols, std::vector<std::byte>(rows * row_bytes(dtype, cols))};
  if (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16) {
    std::byte* p = weight.bytes.data();
    for (const float x : random_floats(rows * cols, rng)) {
      if (dtype == DType::F32) {
        std::memcpy(p, &x, 4);
      } else {
        const auto high = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
        const std::uint16_t bits = dtype == DType::F16 ? float_to_half(x) : high;
        std::memcpy(p, &bits, 2);
      }
      p += info(dtype).block_bytes;
    }
    return weight;
  }
  for (std::byte& b : weight.bytes) {
    b = static_cast<std::byte>(rng() & 0xFF);
  }
  const std::size_t block = info(dtype).block_bytes;
  for (std::size_t at = 0; at < weight.bytes.size(); at += block) {
    std::byte* p = weight.bytes.data() + at;
    switch (dtype) {
      case DType::Q4_1:
      case DType::Q5_1:
        put_scale(p, rng, 0.1F);
        put_scale(p + 2, rng, 1.0F);
        break;
      case DType::Q4_K:
      case DType::Q5_K:
        put_scale(p, rng, 0.002F);
        put_scale(p + 2, rng, 0.02F);
        break;
      case DType::Q6_K:
        put_scale(p + 208, rng, 0.0005F);
        break;
      default:
        put_scale(p, rng, dtype == DType::Q8_0 ? 0.01F : 0.1F);
    }
  }
  return weight;
}

double oracle_element(DType dtype, const std::byte* row, std::size_t i) {
  const DTypeInfo layout = info(dtype);
  const std::byte* block = row + i / layout.block_elements * layout.block_bytes;
  const std::size_t j = i % layout.block_elements;
  const auto nibble = [&](std::size_t at) {
    const unsigned pair = u8(block + at + j % 16);
    return j < 16 ? pair % 16 : pair / 16;
  };
  const auto fifth = [&](std::size_t at) { return 16 * (u8(block + at + j / 8) >> (j % 8) & 1U); };
  const double scale = half_value(u16(block));
  switch (dtype) {
    case DType::F32: {
      float x;
      std::memcpy(&x, block, 4);
      return x;
    }
    case DType::F16:
      return half_value(u16(block));
    case DType::BF16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(u16(block)) << 16);
    case DType::Q4_0:
      return scale * (static_cast<int>(nibble(2)) - 8);
    case DType::Q4_1:
      return scale * nibble(4) + half_value(u16(block + 2));
    case DType::Q5_0:
      return scale * (static_cast<int>(nibble(6) + fifth(2)) - 16);
    case DType::Q5_1:
      return scale * (nibble(8) + fifth(4)) + half_value(u16(block + 2));
    case DType::Q8_0:
      return scale * static_cast<std::int8_t>(u8(block + 2 + j));
    case DType::Q4_K:
    case DType::Q5_K:
      return k_element(dtype, block, j);
    case DType::Q6_K:
      return q6_element(block, j);
  }
  return 0;
}

std::vector<double> oracle_values(const RandomWeight& weight) {
  std::vector<double> values(weight.rows * weight.cols);
  for (std::size_t r = 0; r < weight.rows; ++r) {
    const std::byte* row = weight.bytes.data() + r * row_bytes(weight.dtype, weight.cols);
    for (std::size_t i = 0; i < weight.cols; ++i) {
      values[r * weight.cols + i] = oracle_element(weight.dtype, row, i);
    }
  }
  return values;
}

void expect_near_float64(const std::vector<float>& y,
                         const std::vector<float>& x,
                         const RandomWeight& weight,
                         double start,
                         double share,
                         const std::string& what) {
  const std::vector<double> w = oracle_values(weight);
  ASSERT_EQ(y.size() * weight.cols, x.size() * weight.rows) << what;
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = start;
    double size = 0;
    for (std::size_t k = 0; k < weight.cols; ++k) {
      const double term =
          x[i / weight.rows * weight.cols + k] * w[i % weight.rows * weight.cols + k];
      sum += term;
      size += std::fabs(term);
    }
    EXPECT_NEAR(y[i], sum, size * share) << what << " " << i;
  }
}

}  // namespace baton::kernels::testing
