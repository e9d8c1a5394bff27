// What tests of kernels on single rows share: how far results are from the oracle, and that a row's
// bits are the same alone, among 7 and among 64, whatever the order of threads.
//
// Thread: one. Failure: a gtest failure that says where.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator.h"
#include "tests/unit/kernels/float_rows.h"

namespace baton::kernels::cuda::testing {

using baton::testing::ThreadOrder;
using kernels::testing::expect_same_bits;
using kernels::testing::random_floats;

inline constexpr std::size_t kRows = 64;

// Rows [first, first + count) of an operation's result.
using RowOperation =
    std::function<std::vector<float>(std::size_t first, std::size_t count, ThreadOrder order)>;

// Relative to the wanted number's size, and for numbers near zero to 1e-2.
inline void expect_near(const std::string& what,
                        const std::vector<float>& got,
                        const std::vector<float>& want,
                        double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]) /
                         (std::fabs(static_cast<double>(want[i])) + 1e-2);
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  EXPECT_LE(worst, tolerance) << what << " at " << at << ": " << got[at] << " for " << want[at];
}

// `want`: the oracle's kRows rows.
inline void expect_rows(const std::string& what,
                        const std::vector<float>& want,
                        double tolerance,
                        const RowOperation& operation) {
  const std::size_t width = want.size() / kRows;
  const std::vector<float> all = operation(0, kRows, ThreadOrder::Ascending);
  expect_near(what, all, want, tolerance);
  expect_same_bits(operation(0, kRows, ThreadOrder::Descending), all, what + ", threads backwards");
  for (const std::size_t count : {1, 7}) {
    const std::size_t first = kRows / 2;
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(first * width);
    const std::vector<float> part(from, from + static_cast<std::ptrdiff_t>(count * width));
    expect_same_bits(operation(first, count, ThreadOrder::Ascending),
                     part,
                     fmt::format("{}, {} rows of {}", what, count, kRows));
  }
}

}  // namespace baton::kernels::cuda::testing
