// Norms, rotary embedding, gated activations and sums: against float64 on every backend, and bit
// for bit across instruction sets, threads and numbers of rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "kernels/hadamard.h"
#include "kernels/kv_codes.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::NamedBackend;
using testing::random_floats;

// Runs an operation of one input over `rows` rows on one backend.
using Operation = std::function<std::vector<float>(Backend&, std::size_t first, std::size_t rows)>;

// All rows at once, then row ranges, on every fast backend: equal bits. Gives the reference's.
void expect_invariant(const std::string& what,
                      std::size_t rows,
                      std::size_t width,
                      double tolerance,
                      const std::vector<double>& want,
                      const Operation& operation) {
  std::vector<float> bits;
  for (const NamedBackend& named : testing::all_backends()) {
    const std::vector<float> all = operation(*named.backend, 0, rows);
    ASSERT_EQ(all.size(), want.size());
    double worst = 0;
    std::size_t worst_at = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double error = std::fabs(all[i] - want[i]) / (std::fabs(want[i]) + 1e-2);
      if (!(error <= worst)) {
        worst = error;
        worst_at = i;
      }
    }
    EXPECT_LE(worst, tolerance) << what << " " << named.name << " worst at " << worst_at << ": "
                                << all[worst_at] << " for " << want[worst_at];
    if (named.name == "reference") {
      continue;
    }
    if (bits.empty()) {
      bits = all;
    }
    testing::expect_same_bits(all, bits, what + " " + named.name);
    for (const std::size_t count : {1, 2, 7}) {
      const std::size_t first = rows / 2;
      const std::vector<float> part(
          bits.begin() + static_cast<std::ptrdiff_t>(first * width),
          bits.begin() + static_cast<std::ptrdiff_t>((first + count) * width));
      testing::expect_same_bits(operation(*named.backend, first, count),
                                part,
                                fmt::format("{} {} {} rows", what, named.name, count));
    }
  }
}

TEST(RowOps, RmsNorm) {
  std::mt19937 rng(11);
  for (const std::size_t dim : {1, 16, 30, 64, 576, 640}) {
    const std::size_t rows = 40;
    const std::vector<float> x = random_floats(rows * dim, rng, 3.0F);
    const std::vector<float> weight = random_floats(dim, rng);
    std::vector<double> want;
    for (std::size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < dim; ++i) {
        squares += std::pow(static_cast<double>(x[r * dim + i]), 2);
      }
      for (std::size_t i = 0; i < dim; ++i) {
        want.push_back(x[r * dim + i] / std::sqrt(squares / static_cast<double>(dim) + 1e-5) *
                       weight[i]);
      }
    }
    expect_invariant(
        fmt::format("rms_norm {}", dim),
        rows,
        dim,
        2e-6,
        want,
        [&](Backend& backend, std::size_t first, std::size_t count) {
          std::vector<float> out(x.begin() + static_cast<std::ptrdiff_t>(first * dim),
                                 x.begin() + static_cast<std::ptrdiff_t>((first + count) * dim));
          backend.rms_norm(out.data(), count, dim, weight.data(), 1e-5F, out.data());  // in place
          return out;
        });
  }
}

TEST(RowOps, Hadamard) {
  std::mt19937 rng(13);
  for (const std::size_t dim : {1, 2, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 512}) {
    const std::size_t size = hadamard_size(dim);
    const std::size_t rows = 40;
    const std::vector<float> x = random_floats(rows * dim, rng);
    const float factor = 0.25F;
    std::vector<double> want;
    for (std::size_t at = 0; at < x.size(); ++at) {
      // Element (i, j) is -1 where i and j have an odd number of ones in common.
      const std::size_t block = at / size * size;
      double sum = 0;
      for (std::size_t j = 0; j < size; ++j) {
        sum += std::popcount((at - block) & j) % 2 == 0 ? x[block + j] : -x[block + j];
      }
      want.push_back(sum * factor);
    }
    expect_invariant(fmt::format("hadamard {}", dim),
                     rows,
                     dim,
                     1e-4,
                     want,
                     [&](Backend& backend, std::size_t first, std::size_t count) {
                       std::vector<float> out(
                           x.begin() + static_cast<std::ptrdiff_t>(first * dim),
                           x.begin() + static_cast<std::ptrdiff_t>((first + count) * dim));
                       backend.hadamard(out.data(), count, dim, factor);
                       return out;
                     });
  }
}

// What the matrix is for: a row with one large number, rounded to codes of eight bits, loses less.
TEST(RowOps, HadamardSpreadsWhatOneNumberHolds) {
  std::mt19937 rng(14);
  constexpr std::size_t kDim = 64;
  std::vector<float> x = random_floats(kDim, rng);
  x[17] = 60.0F;
  const auto error = [&](bool spread) {
    std::vector<float> row = x;
    if (spread) {
      hadamard_row(row.data(), kDim, 1.0F);
    }
    std::array<std::int8_t, kDim> codes;
    const float scale = to_int8(row.data(), kDim, codes.data());
    for (std::size_t i = 0; i < kDim; ++i) {
      row[i] = static_cast<float>(codes[i]) * scale;
    }
    if (spread) {
      hadamard_row(row.data(), kDim, 1.0F / kDim);
    }
    double sum = 0;
    for (std::size_t i = 0; i < kDim; ++i) {
      sum += std::pow(static_cast<double>(row[i]) - x[i], 2);
    }
    return sum;
  };
  EXPECT_LT(error(true) * 10, error(false));
}

TEST(RowOps, Rope) {
  std::mt19937 rng(12);
  for (const RopeStyle style : {RopeStyle::Interleaved, RopeStyle::Halves}) {
    for (const std::size_t half : {4, 8, 12, 20, 32, 128}) {
      const std::size_t head_dim = 2 * half;
      const std::size_t heads = 3;
      const std::size_t rows = 33;
      const std::size_t width = heads * head_dim;
      std::vector<float> cosines;
      std::vector<float> sines;
      for (std::size_t p = 0; p < 50; ++p) {
        for (std::size_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / half);
          cosines.push_back(static_cast<float>(std::cos(angle)));
          sines.push_back(static_cast<float>(std::sin(angle)));
        }
      }
      const RopeTable table{50, half, cosines, sines};
      std::vector<std::uint32_t> positions(rows);
      for (std::size_t r = 0; r < rows; ++r) {
        positions[r] = static_cast<std::uint32_t>(rng() % 50);
      }
      const std::vector<float> x = random_floats(rows * width, rng);
      std::vector<double> want(x.begin(), x.end());
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t h = 0; h < heads; ++h) {
          for (std::size_t i = 0; i < half; ++i) {
            const std::size_t head = r * width + h * head_dim;
            const std::size_t a = head + (style == RopeStyle::Halves ? i : 2 * i);
            const std::size_t b = head + (style == RopeStyle::Halves ? i + half : 2 * i + 1);
            const double c = cosines[positions[r] * half + i];
            const double s = sines[positions[r] * half + i];
            want[a] = x[a] * c - x[b] * s;
            want[b] = x[a] * s + x[b] * c;
          }
        }
      }
      // Stored with a gap behind each row, which must stay as it is.
      const std::size_t stride = width + 5;
      expect_invariant(
          fmt::format("rope {} {}", style == RopeStyle::Halves ? "halves" : "pairs", half),
          rows,
          width,
          3e-5,
          want,
          [&](Backend& backend, std::size_t first, std::size_t count) {
            std::vector<float> wide(count * stride, 9.0F);
            for (std::size_t r = 0; r < count; ++r) {
              std::copy_n(x.data() + (first + r) * width, width, wide.data() + r * stride);
            }
            backend.rope(wide.data(),
                         count,
                         stride,
                         heads,
                         head_dim,
                         std::span(positions).subspan(first, count),
                         table,
                         style);
            std::vector<float> out;
            for (std::size_t r = 0; r < count; ++r) {
              const auto row = wide.begin() + static_cast<std::ptrdiff_t>(r * stride);
              out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(width));
              EXPECT_EQ(row[static_cast<std::ptrdiff_t>(width)], 9.0F);
            }
            return out;
          });
    }
  }
}

TEST(RowOps, GatedActivations) {
  std::mt19937 rng(13);
  for (const bool gelu : {false, true}) {
    for (const std::size_t dim : {1, 15, 64, 1530}) {
      const std::size_t rows = 20;
      std::vector<float> gate = random_floats(rows * dim, rng, 4.0F);
      const std::vector<float> up = random_floats(rows * dim, rng);
      gate[0] = 100.0F;
      gate[dim] = -100.0F;
      std::vector<double> want;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i];
        const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        want.push_back((gelu ? 0.5 * g * (1 + std::tanh(inner)) : g / (1 + std::exp(-g))) * up[i]);
      }
      expect_invariant(fmt::format("{} {}", gelu ? "gelu" : "silu", dim),
                       rows,
                       dim,
                       5e-6,
                       want,
                       [&](Backend& backend, std::size_t first, std::size_t count) {
                         std::vector<float> out(count * dim);
                         const float* g = gate.data() + first * dim;
                         const float* u = up.data() + first * dim;
                         gelu ? backend.gelu_mul(g, u, count, dim, dim, out.data())
                              : backend.silu_mul(g, u, count, dim, dim, out.data());
                         return out;
                       });
    }
  }
}

TEST(RowOps, Add) {
  std::mt19937 rng(14);
  for (const std::size_t n : {1, 17, 1000, 100003}) {
    const std::vector<float> x = random_floats(n, rng);
    const std::vector<float> y = random_floats(n, rng);
    std::vector<float> want(n);
    for (std::size_t i = 0; i < n; ++i) {
      want[i] = x[i] + y[i];
    }
    for (const NamedBackend& named : testing::all_backends()) {
      std::vector<float> got = x;
      named.backend->add(got.data(), y.data(), n);
      testing::expect_same_bits(got, want, named.name);
    }
  }
}

TEST(RowOps, EveryInstructionSetIsOfOneNumericsFamilyAndTheReferenceOfAnother) {
  const std::vector<NamedBackend> cpu = testing::cpu_backends();
  for (const NamedBackend& named : cpu) {
    EXPECT_EQ(named.backend->numerics_family(), cpu.front().backend->numerics_family());
  }
  EXPECT_NE(make_reference_backend()->numerics_family(), cpu.front().backend->numerics_family());
}

}  // namespace
}  // namespace baton::kernels
