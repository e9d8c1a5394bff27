// Least squares over decayed sums, drawn a little towards 0. A part that would come out negative is
// left out, and the rest is solved again.
#include "engine/step/step_cost.h"

#include <algorithm>
#include <cmath>

namespace baton::engine {
namespace {

constexpr double kKeep = 0.996;  // of the past, a step
// Pulls towards 0, in units of a part's own square. The fixed part has next to none: what cannot be
// told apart from it belongs to it.
constexpr double kPull = 0.05;
constexpr double kFixedPull = 1e-6;
// A step that takes so many times what is expected was disturbed.
constexpr double kOutlier = 4.0;
constexpr std::uint64_t kTrusted = 16;  // steps after which an expectation is one

}  // namespace

// Scaled so that usual steps give numbers of about 1.
StepCost::Parts StepCost::parts_of(const StepShape& shape) {
  return {
      1.0, shape.rows / 4.0, shape.prompt_rows / 64.0, static_cast<double>(shape.context) / 1024.0};
}

void StepCost::observe(const StepShape& shape, double seconds) {
  if (num_observed_ >= kTrusted) {
    seconds = std::min(seconds, kOutlier * predict(shape));
  }
  ++num_observed_;
  const Parts parts = parts_of(shape);
  for (std::size_t i = 0; i < kParts; ++i) {
    for (std::size_t j = 0; j < kParts; ++j) {
      moments_[i][j] = kKeep * moments_[i][j] + parts[i] * parts[j];
    }
    products_[i] = kKeep * products_[i] + parts[i] * seconds;
  }
  solve();
}

void StepCost::solve() {
  std::array<bool, kParts> out{};
  for (std::size_t round = 0; round < kParts; ++round) {
    std::array<Parts, kParts> a = moments_;
    Parts x = products_;
    for (std::size_t i = 0; i < kParts; ++i) {
      a[i][i] += i == 0 ? kFixedPull : kPull;
      if (out[i]) {
        a[i] = {};
        for (Parts& row : a) {
          row[i] = 0;
        }
        a[i][i] = 1;
        x[i] = 0;
      }
    }
    // Gauss without pivoting: the matrix is positive definite.
    for (std::size_t i = 0; i < kParts; ++i) {
      for (std::size_t j = i + 1; j < kParts; ++j) {
        const double factor = a[j][i] / a[i][i];
        for (std::size_t k = i; k < kParts; ++k) {
          a[j][k] -= factor * a[i][k];
        }
        x[j] -= factor * x[i];
      }
    }
    for (std::size_t i = kParts; i-- > 0;) {
      for (std::size_t k = i + 1; k < kParts; ++k) {
        x[i] -= a[i][k] * x[k];
      }
      x[i] /= a[i][i];
    }
    const auto least = std::ranges::min_element(x);
    if (*least >= 0) {
      cost_ = x;
      return;
    }
    out[static_cast<std::size_t>(least - x.begin())] = true;
  }
  cost_ = {};
}

double StepCost::predict(const StepShape& shape) const {
  const Parts parts = parts_of(shape);
  double seconds = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    seconds += cost_[i] * parts[i];
  }
  return seconds;
}

double StepCost::row_seconds(std::uint64_t context) const {
  const Parts parts = parts_of({.rows = 1, .context = context});
  return cost_[1] * parts[1] + cost_[3] * parts[3];
}

}  // namespace baton::engine
