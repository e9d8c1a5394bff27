// The products' kernels, run by the emulator, against float64; a row's bits in batches of 1, 7 and
// 64, with K in one block or one block a part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/matmul_launches.h"
#include "kernels/cuda/packed_weight.h"
#include "kernels/gguf_blocks.h"
#include "kernels/kv_codes.h"
#include "tests/unit/kernels/random_weights.h"

namespace baton::kernels::cuda {
namespace {

using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;

constexpr std::size_t kRows = 83;  // of a matrix: no multiple of a tile
constexpr std::size_t kPadK = 64;

template <class T>
class Aligned {
 public:
  explicit Aligned(std::size_t count)
      : bytes_(count * sizeof(T) + kLine), first_(kLine - address() % kLine) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data() + first_); }

 private:
  static constexpr std::size_t kLine = 256;
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  std::vector<std::byte> bytes_;
  std::size_t first_;
};

// A matrix on the device and what multiplies with it.
class Product {
 public:
  explicit Product(const WeightView& weight)
      : dtype_(weight.dtype),
        rows_(weight.rows),
        cols_(weight.cols),
        places_(packed_places(weight.dtype, weight.rows, weight.cols)),
        packed_(places_.bytes) {
    for (std::size_t tile = 0; tile < tiles_of(rows_); ++tile) {
      pack_tile(weight, tile, {packed_.data(), places_.bytes});
    }
  }
  // FP8 with a scale a row.
  Product(std::span<const std::byte> codes, std::span<const float> scales, std::size_t cols)
      : dtype_(DType::BF16),
        is_e4m3_(true),
        rows_(scales.size()),
        cols_(cols),
        places_(packed_places_e4m3(rows_, cols)),
        packed_(places_.bytes) {
    for (std::size_t tile = 0; tile < tiles_of(rows_); ++tile) {
      pack_tile_e4m3(codes, rows_, cols, tile, {packed_.data(), places_.bytes});
    }
    std::memcpy(packed_.data() + places_.scales, scales.data(), scales.size_bytes());
  }

  // x: [m][cols]. `in_parts`: a block a part of K.
  std::vector<float> multiply(const float* x, std::size_t m, bool in_parts = false) {
    std::vector<float> y(m * rows_, -1.0F);
    run(x, m, {.y = y.data(), .stride = rows_, .m = static_cast<std::uint32_t>(m)}, in_parts);
    return y;
  }
  void run(const float* x, std::size_t m, MatmulTarget out, bool in_parts) {
    std::vector<float> parts(parts_of(static_cast<unsigned>(cols_)) * m * rows_);
    out.parts = in_parts ? parts.data() : nullptr;
    if (dtype_ == DType::F32) {
      out.parts = nullptr;
      launch_plain_matmul({},
                          {reinterpret_cast<const float*>(packed_.data()),
                           x,
                           static_cast<std::uint32_t>(rows_),
                           static_cast<std::uint32_t>(cols_),
                           out});
    } else if (is_quantised(dtype_)) {
      quantised(x, m, out);
    } else {
      floats(x, m, out);
    }
  }

  std::vector<float> read_rows(std::span<const std::int32_t> ids, float scale) {
    std::vector<float> out(ids.size() * cols_);
    const auto count = static_cast<unsigned>(ids.size());
    if (dtype_ == DType::F32) {
      launch_read_plain_rows({},
                             count,
                             {reinterpret_cast<const float*>(packed_.data()),
                              ids.data(),
                              static_cast<std::uint32_t>(cols_),
                              scale,
                              out.data()});
    } else {
      launch_read_rows({},
                       dtype_,
                       count,
                       {quant_matrix(dtype_, rows_, cols_, packed_.data()),
                        float_matrix(rows_, cols_, packed_.data()),
                        ids.data(),
                        scale,
                        out.data()});
    }
    return out;
  }

 private:
  void quantised(const float* x, std::size_t m, const MatmulTarget& out) {
    const std::size_t groups = m * cols_ / kGroup;
    Aligned<std::uint32_t> codes(m * cols_ / 4);
    std::vector<float> scales(groups);
    std::vector<float> sums(groups);
    launch_quantise(
        {}, {x, static_cast<std::uint32_t>(groups), codes.data(), scales.data(), sums.data()});
    launch_quant_matmul({},
                        dtype_,
                        {quant_matrix(dtype_, rows_, cols_, packed_.data()),
                         {codes.data(), scales.data(), sums.data()},
                         out});
  }

  void floats(const float* x, std::size_t m, const MatmulTarget& out) {
    const std::size_t padded = (cols_ + kPadK - 1) / kPadK * kPadK;
    Aligned<std::uint16_t> high(m * padded);
    Aligned<std::uint16_t> low(m * padded);
    std::vector<float> scales(m);
    const FloatFormat format = is_e4m3_               ? FloatFormat::E4m3
                               : dtype_ == DType::F16 ? FloatFormat::Half
                                                      : FloatFormat::Bfloat;
    launch_split({},
                 format,
                 static_cast<unsigned>(m),
                 {x,
                  static_cast<std::uint32_t>(cols_),
                  static_cast<std::uint32_t>(padded),
                  high.data(),
                  low.data(),
                  scales.data()});
    FloatMatrix w = float_matrix(rows_, cols_, packed_.data());
    if (is_e4m3_) {
      w.scales = reinterpret_cast<const float*>(packed_.data() + places_.scales);
    }
    launch_float_matmul(
        {},
        format,
        {w, {high.data(), low.data(), scales.data()}, static_cast<std::uint32_t>(padded), out});
  }

  DType dtype_;
  bool is_e4m3_ = false;
  std::size_t rows_;
  std::size_t cols_;
  PackedPlaces places_;
  Aligned<std::byte> packed_;
};

// Two parts of K, the second not whole, of whole blocks of the type.
std::size_t columns(DType dtype) {
  return is_quantised(dtype) ? kPartK + 256 : kPartK + 72;
}

// x as 8 bits hold it, in groups of 32.
std::vector<double> rounded(const std::vector<float>& x) {
  std::vector<double> out(x.size());
  for (std::size_t first = 0; first < x.size(); first += kGroup) {
    float largest = 0;
    for (std::size_t i = first; i < first + kGroup; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
    }
    for (std::size_t i = first; i < first + kGroup; ++i) {
      out[i] = std::nearbyint(x[i] * (127.0F / largest)) * static_cast<double>(largest / 127.0F);
    }
  }
  return out;
}

// Worst error over the sum of the terms' magnitudes. w: [rows][cols]
double worst_error(const std::vector<float>& y,
                   const std::vector<double>& x,
                   const std::vector<double>& w,
                   std::size_t m) {
  const std::size_t rows = y.size() / m;
  const std::size_t cols = x.size() / m;
  double worst = 0;
  for (std::size_t r = 0; r < m; ++r) {
    for (std::size_t n = 0; n < rows; ++n) {
      double sum = 0;
      double size = 1e-30;
      for (std::size_t k = 0; k < cols; ++k) {
        const double term = x[r * cols + k] * w[n * cols + k];
        sum += term;
        size += std::fabs(term);
      }
      const double error = std::fabs(y[r * rows + n] - sum) / size;
      worst = error <= worst ? worst : error;  // a NaN is worse than all
    }
  }
  return worst;
}

class MatmulOfType : public ::testing::TestWithParam<DType> {
 protected:
  std::mt19937 rng_{11};
  const DType dtype_ = GetParam();
  const std::size_t cols_ = columns(dtype_);
  const RandomWeight weight_ = random_weight(dtype_, kRows, cols_, rng_);
  Product product_{weight_.view()};
};

TEST_P(MatmulOfType, AgreesWithFloat64) {
  const std::vector<double> w = testing::oracle_values(weight_);
  for (const std::size_t m : {1U, 7U, 66U}) {
    const std::vector<float> x = random_floats(m * cols_, rng_);
    const bool is_exact = !is_quantised(dtype_);
    const std::vector<double> operand =
        is_exact ? std::vector<double>(x.begin(), x.end()) : rounded(x);
    // A rounding of float32 a group in a chain of 32 groups; of BF16 halves 16 bits count.
    const double bound = dtype_ == DType::BF16 ? 0x1p-16 : 0x1p-19;
    EXPECT_LT(worst_error(product_.multiply(x.data(), m), operand, w, m), bound) << m;
  }
}

TEST_P(MatmulOfType, ARowsBitsDependOnNothingElse) {
  constexpr std::size_t kAll = 64;
  const std::vector<float> x = random_floats(kAll * cols_, rng_);
  const std::vector<float> all = product_.multiply(x.data(), kAll);
  testing::expect_same_bits(product_.multiply(x.data(), kAll, true), all, "a block a part of K");
  for (const std::size_t m : {1U, 7U}) {
    for (const bool in_parts : {false, true}) {
      const std::size_t first = kAll - m - 3;
      const std::vector<float> some = product_.multiply(x.data() + first * cols_, m, in_parts);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * kRows);
      testing::expect_same_bits(some,
                                {begin, begin + static_cast<std::ptrdiff_t>(m * kRows)},
                                fmt::format("{} rows{}", m, in_parts ? ", a block a part" : ""));
    }
  }
}

TEST_P(MatmulOfType, AddsToWhatIsThereLastAndKeepsToItsStride) {
  constexpr std::size_t kM = 3;
  constexpr std::size_t kStride = kRows + 5;
  const std::vector<float> x = random_floats(kM * cols_, rng_);
  const std::vector<float> plain = product_.multiply(x.data(), kM);
  for (const bool in_parts : {false, true}) {
    std::vector<float> y(kM * kStride, 0.5F);
    product_.run(
        x.data(), kM, {.y = y.data(), .stride = kStride, .m = kM, .accumulate = true}, in_parts);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t n = i % kStride;
      const float want = n < kRows ? 0.5F + plain[i / kStride * kRows + n] : 0.5F;
      ASSERT_EQ(y[i], want) << i;
    }
  }
}

TEST_P(MatmulOfType, RowsAreReadAsTheFileHasThem) {
  const std::vector<std::int32_t> ids{0, 17, 82, 17};
  const std::vector<float> got = product_.read_rows(ids, 3.0F);
  std::vector<float> row(cols_);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t bytes = row_bytes(dtype_, cols_);
    dequantise_row(
        dtype_, weight_.bytes.data() + static_cast<std::size_t>(ids[i]) * bytes, cols_, row.data());
    for (std::size_t k = 0; k < cols_; ++k) {
      ASSERT_EQ(got[i * cols_ + k], row[k] * 3.0F) << ids[i] << " " << k;
    }
  }
}

TEST_P(MatmulOfType, WhatIsNoNumberStaysSoInItsRowAlone) {
  std::vector<float> x(4 * cols_, 0.0F);
  x[cols_] = 1e-38F;
  x[2 * cols_ + 5] = HUGE_VALF;
  x[3 * cols_ + 40] = NAN;
  const std::vector<float> y = product_.multiply(x.data(), 4);
  for (std::size_t n = 0; n < kRows; ++n) {
    EXPECT_EQ(y[n], 0.0F);
    EXPECT_LT(std::fabs(y[kRows + n]), 1e-30F);
    EXPECT_FALSE(std::isfinite(y[2 * kRows + n])) << n;
    EXPECT_TRUE(std::isnan(y[3 * kRows + n])) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda,
                         MatmulOfType,
                         ::testing::ValuesIn(testing::kAllTypes),
                         [](const auto& info) {
                           return std::string(kernels::info(info.param).name);
                         });

TEST(MatmulOfE4m3, AgreesWithFloat64AndKeepsARowsBits) {
  constexpr std::size_t kCols = kPartK + 72;
  std::mt19937 rng(12);
  std::vector<std::byte> codes(kRows * kCols);
  std::vector<float> scales(kRows);
  std::vector<double> w(codes.size());
  for (float& scale : scales) {
    scale = 0.01F + static_cast<float>(rng() % 1000) * 0.001F;
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint8_t code = static_cast<std::uint8_t>(rng());
    code = (code & 0x7FU) == 0x7FU ? 0 : code;  // no NaN
    codes[i] = static_cast<std::byte>(code);
    w[i] = static_cast<double>(e4m3_to_float(code)) * static_cast<double>(scales[i / kCols]);
  }
  Product product(codes, scales, kCols);
  constexpr std::size_t kAll = 64;
  const std::vector<float> x = random_floats(kAll * kCols, rng);
  const std::vector<float> all = product.multiply(x.data(), kAll);
  EXPECT_LT(worst_error(all, {x.begin(), x.end()}, w, kAll), 0x1p-16);
  for (const std::size_t m : {1U, 7U}) {
    testing::expect_same_bits(product.multiply(x.data(), m, true),
                              {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(m * kRows)},
                              fmt::format("{} rows", m));
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
