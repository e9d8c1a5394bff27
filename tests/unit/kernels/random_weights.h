// Random weights of every type, and a decoder of GGUF blocks written element by element, on purpose
// unlike the one under test.
//
// Thread: one. Failure: none.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/unit/kernels/float_rows.h"

namespace baton::kernels::testing {

inline constexpr DType kAllTypes[] = {DType::F32,
                                      DType::F16,
                                      DType::BF16,
                                      DType::Q4_0,
                                      DType::Q4_1,
                                      DType::Q5_0,
                                      DType::Q5_1,
                                      DType::Q8_0,
                                      DType::Q4_K,
                                      DType::Q5_K,
                                      DType::Q6_K};

struct RandomWeight {
  DType dtype;
  std::size_t rows;
  std::size_t cols;
  std::vector<std::byte> bytes;
  WeightView view() const { return {dtype, rows, cols, bytes}; }
};
// Values of about unit size or less; every code and scale bit pattern occurs.
RandomWeight random_weight(DType dtype, std::size_t rows, std::size_t cols, std::mt19937& rng);

// Element i of a row.
double oracle_element(DType dtype, const std::byte* row, std::size_t i);
std::vector<double> oracle_values(const RandomWeight& weight);

// y: [rows][weight.rows], `start` plus x times the weight. Each is within this share of its terms'
// magnitudes of what float64 gives.
void expect_near_float64(const std::vector<float>& y,
                         const std::vector<float>& x,
                         const RandomWeight& weight,
                         double start,
                         double share,
                         const std::string& what);

}  // namespace baton::kernels::testing
