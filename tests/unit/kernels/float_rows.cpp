#include "tests/unit/kernels/float_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

namespace baton::kernels::testing {

std::vector<float> random_floats(std::size_t count, std::mt19937& rng, float spread) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> out(count);
  for (float& x : out) {
    x = normal(rng);
  }
  return out;
}

void expect_same_bits(const std::vector<float>& got,
                      const std::vector<float>& want,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) {
    return;
  }
  std::size_t i = 0;
  while (std::memcmp(&got[i], &want[i], sizeof(float)) == 0) {
    ++i;
  }
  ADD_FAILURE() << fmt::format(
      "{}: first difference at {} of {}: {} and {}", what, i, got.size(), got[i], want[i]);
}

}  // namespace baton::kernels::testing
