// Biases, soft caps and the steps of a mixture of experts: against float64 on every backend, and
// bit for bit across instruction sets, threads and numbers of rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::NamedBackend;
using testing::random_floats;

void expect_near(const std::vector<float>& got,
                 const std::vector<double>& want,
                 double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << what << " at " << i;
  }
}

TEST(ExpertOps, AddBias) {
  std::mt19937 rng(21);
  for (const std::size_t dim : {1, 17, 64, 1000}) {
    constexpr std::size_t kRows = 70;
    const std::vector<float> x = random_floats(kRows * dim, rng);
    const std::vector<float> bias = random_floats(dim, rng);
    std::vector<float> want = x;
    for (std::size_t i = 0; i < want.size(); ++i) {
      want[i] += bias[i % dim];
    }
    for (const NamedBackend& named : testing::all_backends()) {
      std::vector<float> got = x;
      named.backend->add_bias(got.data(), kRows, dim, bias.data());
      testing::expect_same_bits(got, want, named.name);
    }
  }
}

TEST(ExpertOps, SoftcapBendsAndNeverPassesTheCap) {
  std::mt19937 rng(22);
  for (const std::size_t n : {1, 16, 37, 9001}) {
    std::vector<float> x = random_floats(n, rng, 60.0F);
    x[0] = 1e30F;
    x[n - 1] = n > 1 ? -1e30F : x[0];
    constexpr float kCap = 30.0F;
    std::vector<double> want;
    for (const float value : x) {
      want.push_back(kCap * std::tanh(static_cast<double>(value) / kCap));
    }
    std::vector<float> bits;
    for (const NamedBackend& named : testing::all_backends()) {
      std::vector<float> got = x;
      named.backend->softcap(got.data(), n, kCap);
      expect_near(got, want, 2e-5, named.name);
      EXPECT_LE(*std::max_element(got.begin(), got.end()), kCap);
      if (named.name != "reference") {
        bits = bits.empty() ? got : bits;
        testing::expect_same_bits(got, bits, named.name);
        float single = x[n / 2];
        named.backend->softcap(&single, 1, kCap);
        EXPECT_EQ(single, bits[n / 2]) << named.name;
      }
    }
  }
}

struct Routes {
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};

Routes route(Backend& backend, std::span<const float> logits, const RouteParams& params) {
  const std::size_t rows = logits.size() / params.count;
  Routes out{std::vector<std::uint32_t>(rows * params.used),
             std::vector<float>(rows * params.used)};
  backend.route(logits.data(), rows, params, out.experts.data(), out.weights.data());
  return out;
}

TEST(ExpertOps, RouteTakesTheLargestAndTheirShareOfTheSoftmax) {
  std::mt19937 rng(23);
  constexpr std::size_t kRows = 150;
  for (const bool renormalise : {false, true}) {
    for (const RouteParams params : {RouteParams{8, 2, renormalise},
                                     RouteParams{128, 8, renormalise},
                                     RouteParams{5, 5, renormalise},
                                     RouteParams{1, 1, renormalise}}) {
      const std::vector<float> logits = random_floats(kRows * params.count, rng, 4.0F);
      Routes bits;
      for (const NamedBackend& named : testing::all_backends()) {
        const Routes got = route(*named.backend, logits, params);
        for (std::size_t r = 0; r < kRows; ++r) {
          const float* row = logits.data() + r * params.count;
          const std::uint32_t* chosen = got.experts.data() + r * params.used;
          double all = 0;
          double used = 0;
          for (std::size_t e = 0; e < params.count; ++e) {
            all += std::exp(static_cast<double>(row[e]));
          }
          for (std::size_t j = 0; j < params.used; ++j) {
            used += std::exp(static_cast<double>(row[chosen[j]]));
            // As many are larger as stand before it.
            ASSERT_EQ(
                std::count_if(row, row + params.count, [&](float x) { return x > row[chosen[j]]; }),
                static_cast<std::ptrdiff_t>(j));
          }
          for (std::size_t j = 0; j < params.used; ++j) {
            ASSERT_NEAR(got.weights[r * params.used + j],
                        std::exp(static_cast<double>(row[chosen[j]])) / (renormalise ? used : all),
                        1e-6);
          }
        }
        if (named.name != "reference") {
          bits = bits.experts.empty() ? got : bits;
          EXPECT_EQ(got.experts, bits.experts) << named.name;
          testing::expect_same_bits(got.weights, bits.weights, named.name);
          const Routes one = route(
              *named.backend, std::span(logits).subspan(7 * params.count, params.count), params);
          for (std::size_t j = 0; j < params.used; ++j) {
            EXPECT_EQ(one.experts[j], bits.experts[7 * params.used + j]);
            EXPECT_EQ(one.weights[j], bits.weights[7 * params.used + j]);
          }
        }
      }
    }
  }
}

TEST(ExpertOps, EqualLogitsGoToTheLowerIndexAndHugeOnesStayFinite) {
  const std::vector<float> logits{1,
                                  5,
                                  5,
                                  0,
                                  5,
                                  1,  //
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,  //
                                  3e38F,
                                  -3e38F,
                                  3e38F,
                                  0,
                                  0,
                                  0};
  for (const NamedBackend& named : testing::all_backends()) {
    const Routes got = route(*named.backend, logits, {6, 4, true});
    EXPECT_EQ(got.experts, (std::vector<std::uint32_t>{1, 2, 4, 0, 0, 1, 2, 3, 0, 2, 3, 4}))
        << named.name;
    EXPECT_EQ(got.weights[4], 0.25F);
    EXPECT_EQ(got.weights[8], 0.5F);
    EXPECT_EQ(got.weights[10], 0.0F);
  }
}

TEST(ExpertOps, GatheredAndMixedRowsMeetInTheOrderOfTheirRanks) {
  std::mt19937 rng(24);
  for (const std::size_t dim : {1, 30, 64, 700}) {
    constexpr std::size_t kRows = 60;
    constexpr std::size_t kUsed = 3;
    const std::vector<float> x = random_floats(kRows * dim, rng);
    const std::vector<float> weights = random_floats(kRows * kUsed, rng);
    std::vector<std::uint32_t> rows(kRows * kUsed);
    for (std::uint32_t& row : rows) {
      row = static_cast<std::uint32_t>(rng() % kRows);
    }
    std::vector<float> gathered_want;
    std::vector<double> mixed_want;
    for (const std::uint32_t row : rows) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(row * dim);
      gathered_want.insert(gathered_want.end(), first, first + static_cast<std::ptrdiff_t>(dim));
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (std::size_t j = r * kUsed; j < (r + 1) * kUsed; ++j) {
          sum += static_cast<double>(weights[j]) * static_cast<double>(x[rows[j] * dim + i]);
        }
        mixed_want.push_back(sum);
      }
    }
    std::vector<float> bits;
    for (const NamedBackend& named : testing::all_backends()) {
      std::vector<float> gathered(rows.size() * dim);
      named.backend->gather_rows(x.data(), dim, rows, gathered.data());
      testing::expect_same_bits(gathered, gathered_want, named.name);
      std::vector<float> mixed(kRows * dim);
      named.backend->mix_rows(x.data(), dim, rows, weights.data(), kUsed, mixed.data());
      expect_near(mixed, mixed_want, 1e-6, named.name);
      if (named.name != "reference") {
        bits = bits.empty() ? mixed : bits;
        testing::expect_same_bits(mixed, bits, named.name);
        std::vector<float> one(dim);
        named.backend->mix_rows(x.data(),
                                dim,
                                std::span(rows).subspan(5 * kUsed, kUsed),
                                weights.data() + 5 * kUsed,
                                kUsed,
                                one.data());
        EXPECT_TRUE(std::equal(one.begin(), one.end(), bits.begin() + 5 * static_cast<long>(dim)));
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels
