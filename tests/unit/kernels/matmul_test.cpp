// Products of every weight type on every backend: against float64, and bit for bit across
// instruction sets, threads and numbers of rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/gguf_blocks.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::NamedBackend;
using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;

std::vector<float> multiply(Backend& backend,
                            const PackedMatrix& w,
                            const float* x,
                            std::size_t m) {
  std::vector<float> y(m * w.rows(), -1.0F);
  const MatmulOut out{&w, y.data(), 0, false};
  backend.matmul(x, m, {&out, 1});
  return y;
}

// Activations as the fast backend rounds them: int8 in blocks of 32.
std::vector<double> rounded_activations(const std::vector<float>& x) {
  std::vector<double> out(x.size());
  for (std::size_t first = 0; first < x.size(); first += 32) {
    float largest = 0;
    for (std::size_t i = first; i < first + 32; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
    }
    const float factor = largest == 0 ? 0 : 127.0F / largest;
    for (std::size_t i = first; i < first + 32; ++i) {
      out[i] = std::nearbyint(x[i] * factor) * static_cast<double>(largest / 127.0F);
    }
  }
  return out;
}

// Worst |got - want| in units of the tolerance, and where.
struct Worst {
  double ratio = 0;
  std::size_t row = 0;
  std::size_t column = 0;
};
Worst compare(const std::vector<float>& got,
              const std::vector<double>& x,
              const std::vector<double>& w,
              std::size_t m,
              std::size_t rows,
              double epsilons) {
  const std::size_t cols = x.size() / m;
  Worst worst;
  for (std::size_t r = 0; r < m; ++r) {
    for (std::size_t n = 0; n < rows; ++n) {
      double sum = 0;
      double size = 0;
      for (std::size_t k = 0; k < cols; ++k) {
        const double term = x[r * cols + k] * w[n * cols + k];
        sum += term;
        size += std::fabs(term);
      }
      const double ratio = std::fabs(got[r * rows + n] - sum) / (size * epsilons * 0x1p-24 + 1e-30);
      if (!(ratio <= worst.ratio)) {
        worst = {ratio, r, n};
      }
    }
  }
  return worst;
}

struct Shape {
  std::size_t rows;
  std::size_t blocks;  // K in blocks of the type; float types: times 32
};

std::size_t columns(DType dtype, std::size_t blocks) {
  return blocks * std::max<std::size_t>(32, info(dtype).block_elements);
}

TEST(Matmul, AgreesWithFloat64) {
  std::mt19937 rng(3);
  const std::vector<NamedBackend> backends = testing::all_backends();
  for (const DType dtype : testing::kAllTypes) {
    for (const Shape shape : {Shape{1, 1}, Shape{19, 1}, Shape{50, 3}, Shape{96, 2}}) {
      const std::size_t cols = columns(dtype, shape.blocks);
      const RandomWeight weight = random_weight(dtype, shape.rows, cols, rng);
      const std::vector<double> w = testing::oracle_values(weight);
      for (const std::size_t m : {1, 5, 31}) {
        const std::vector<float> x = random_floats(m * cols, rng);
        const std::vector<double> exact(x.begin(), x.end());
        for (const NamedBackend& named : backends) {
          const bool rounds = named.name != "reference" && is_quantised(dtype);
          const std::string what = fmt::format(
              "{} {} m {} n {} k {}", named.name, info(dtype).name, m, shape.rows, cols);
          auto packed = named.backend->pack(weight.view());
          ASSERT_TRUE(packed) << what;
          const std::vector<float> y = multiply(*named.backend, **packed, x.data(), m);
          // One chain: an error of half a last place for each of its steps. A min is a second
          // product, and the large parts of code and offset cancel.
          const double steps = named.name == "reference" ? 4 : rounds ? 8.0 + cols / 4.0 : cols;
          const Worst worst =
              compare(y, rounds ? rounded_activations(x) : exact, w, m, shape.rows, steps);
          EXPECT_LE(worst.ratio, 1.0)
              << what << ": worst at row " << worst.row << " column " << worst.column;
        }
      }
    }
  }
}

// What int8 activations may cost: half a step of each block's scale on every product.
TEST(Matmul, RoundedActivationsStayWithinTheirBound) {
  std::mt19937 rng(4);
  for (const DType dtype : testing::kAllTypes) {
    const std::size_t cols = columns(dtype, 2);
    const RandomWeight weight = random_weight(dtype, 40, cols, rng);
    const std::vector<double> w = testing::oracle_values(weight);
    const std::vector<float> x = random_floats(cols, rng);
    for (const NamedBackend& named : testing::cpu_backends()) {
      auto packed = named.backend->pack(weight.view());
      ASSERT_TRUE(packed);
      const std::vector<float> y = multiply(*named.backend, **packed, x.data(), 1);
      for (std::size_t n = 0; n < weight.rows; ++n) {
        double sum = 0;
        double bound = 1e-3;
        for (std::size_t first = 0; first < cols; first += 32) {
          double largest = 0;
          double size = 0;
          for (std::size_t k = first; k < first + 32; ++k) {
            sum += x[k] * w[n * cols + k];
            largest = std::max(largest, std::fabs(static_cast<double>(x[k])));
            size += std::fabs(w[n * cols + k]);
          }
          bound += size * largest / 254;
        }
        EXPECT_NEAR(y[n], sum, bound) << named.name << " " << info(dtype).name << " " << n;
      }
    }
  }
}

TEST(Matmul, ARowsBitsDependOnNothingElse) {
  std::mt19937 rng(5);
  const std::vector<NamedBackend> backends = testing::cpu_backends();
  for (const DType dtype : testing::kAllTypes) {
    const std::size_t rows = 77;
    const std::size_t cols = columns(dtype, 2);
    const std::size_t total = 512;
    const RandomWeight weight = random_weight(dtype, rows, cols, rng);
    const std::vector<float> x = random_floats(total * cols, rng);
    std::vector<float> want;
    for (const NamedBackend& named : backends) {
      auto packed = named.backend->pack(weight.view());
      ASSERT_TRUE(packed);
      const std::vector<float> all = multiply(*named.backend, **packed, x.data(), total);
      if (want.empty()) {
        want = all;
      }
      testing::expect_same_bits(
          all, want, fmt::format("{} {} all rows", named.name, info(dtype).name));
      for (const std::size_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 33, 64}) {
        const std::size_t first = 3 * m;
        const std::vector<float> some =
            multiply(*named.backend, **packed, x.data() + first * cols, m);
        const std::vector<float> part(
            want.begin() + static_cast<std::ptrdiff_t>(first * rows),
            want.begin() + static_cast<std::ptrdiff_t>((first + m) * rows));
        testing::expect_same_bits(
            some, part, fmt::format("{} {} m {}", named.name, info(dtype).name, m));
      }
    }
  }
}

TEST(Matmul, SeveralProductsOfOneInputWithStridesAndSums) {
  std::mt19937 rng(6);
  const std::size_t cols = 256;
  const std::size_t m = 9;
  const RandomWeight a = random_weight(DType::Q4_1, 100, cols, rng);
  const RandomWeight b = random_weight(DType::F16, 31, cols, rng);
  const RandomWeight c = random_weight(DType::Q6_K, 64, cols, rng);
  const std::vector<float> x = random_floats(m * cols, rng);
  for (const NamedBackend& named : testing::all_backends()) {
    const auto pa = named.backend->pack(a.view());
    const auto pb = named.backend->pack(b.view());
    const auto pc = named.backend->pack(c.view());
    ASSERT_TRUE(pa && pb && pc);
    const std::size_t stride = 200;
    std::vector<float> wide(m * stride, 7.0F);
    std::vector<float> sums(m * c.rows, 0.5F);
    const MatmulOut outs[] = {{pa->get(), wide.data(), stride, false},
                              {pb->get(), wide.data() + 100, stride, false},
                              {pc->get(), sums.data(), 0, true}};
    named.backend->matmul(x.data(), m, outs);
    const std::vector<float> ya = multiply(*named.backend, **pa, x.data(), m);
    const std::vector<float> yb = multiply(*named.backend, **pb, x.data(), m);
    const std::vector<float> yc = multiply(*named.backend, **pc, x.data(), m);
    for (std::size_t r = 0; r < m; ++r) {
      for (std::size_t n = 0; n < stride; ++n) {
        const float want = n < 100 ? ya[r * 100 + n] : n < 131 ? yb[r * 31 + n - 100] : 7.0F;
        ASSERT_EQ(wide[r * stride + n], want) << named.name << " " << r << " " << n;
      }
      for (std::size_t n = 0; n < c.rows; ++n) {
        ASSERT_EQ(sums[r * c.rows + n], 0.5F + yc[r * c.rows + n]) << named.name;
      }
    }
  }
}

TEST(Matmul, ZeroTinyAndInfiniteActivations) {
  std::mt19937 rng(8);
  const RandomWeight weight = random_weight(DType::Q8_0, 33, 64, rng);
  for (const NamedBackend& named : testing::cpu_backends()) {
    auto packed = named.backend->pack(weight.view());
    ASSERT_TRUE(packed);
    std::vector<float> x(4 * 64, 0.0F);
    x[64] = 1e-38F;
    x[2 * 64] = HUGE_VALF;
    x[3 * 64] = NAN;
    const std::vector<float> y = multiply(*named.backend, **packed, x.data(), 4);
    for (std::size_t n = 0; n < weight.rows; ++n) {
      EXPECT_EQ(y[n], 0.0F) << named.name;
      EXPECT_EQ(y[33 + n], 0.0F) << named.name;
      EXPECT_TRUE(std::isnan(y[66 + n])) << named.name;
      EXPECT_TRUE(std::isnan(y[99 + n])) << named.name;
    }
  }
}

}  // namespace
}  // namespace baton::kernels
