// Rows of numbers for tests of kernels: random ones, and whether two are the same bits.
//
// Thread: one. Failure: a gtest failure that says where.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace baton::kernels::testing {

std::vector<float> random_floats(std::size_t count, std::mt19937& rng, float spread = 1.0F);

// Bitwise; prints the first place of difference.
void expect_same_bits(const std::vector<float>& got,
                      const std::vector<float>& want,
                      const std::string& what);

}  // namespace baton::kernels::testing
