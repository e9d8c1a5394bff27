// The AMX kernels over a model of the tiles, and on real ones where they are: the integer path bit
// for bit as the scalar kernels, the bfloat16 path as its definition says, whatever the rows,
// threads and shapes; and which table a configuration means on which machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernel_choice.h"
#include "kernels/cpu/self_check.h"
#include "kernels/gguf_blocks.h"
#include "tests/support/emulated_kernels.h"
#include "tests/support/tile_model.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::NamedBackend;
using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;

// The emulated table with 1 and 2 threads, and the real one.
std::vector<NamedBackend> amx_backends(const cpu::KernelTable* emulated, FloatPath float_path) {
  std::vector<NamedBackend> backends;
  const auto add = [&](Result<std::unique_ptr<Backend>> backend) {
    if (backend) {
      std::string name = (*backend)->description();
      backends.push_back({std::move(name), std::move(*backend)});
    }
  };
  for (const unsigned threads : {1U, 2U}) {
    CpuOptions options;
    options.threads = threads;
    options.isa = CpuIsa::Amx;
    options.float_path = float_path;
    if (emulated != nullptr) {
      add(cpu::make_backend(*emulated, options));
    }
    add(make_cpu_backend(options));
  }
  return backends;
}

struct Product {
  std::size_t m;
  std::size_t stride;
  bool accumulate;
};
std::vector<float> multiply(Backend& backend,
                            const RandomWeight& weight,
                            const float* x,
                            Product product) {
  auto packed = backend.pack(weight.view());
  EXPECT_TRUE(packed);
  std::vector<float> y(product.m * product.stride, 0.25F);
  const MatmulOut out{packed->get(), y.data(), product.stride, product.accumulate};
  backend.matmul(x, product.m, {&out, 1});
  return y;
}

TEST(Amx, IntegerProductsHaveTheScalarKernelsBits) {
  const std::vector<NamedBackend> backends =
      amx_backends(testing::emulated_amx_kernels(), FloatPath::Exact);
  if (backends.empty()) {
    GTEST_SKIP() << "this machine has neither AMX nor AVX2";
  }
  CpuOptions options;
  options.isa = CpuIsa::Scalar;
  options.threads = 1;
  const auto scalar = make_cpu_backend(options);
  ASSERT_TRUE(scalar);
  std::mt19937 rng(81);
  for (const DType dtype : testing::kAllTypes) {
    for (const std::size_t blocks : {1, 3, 7}) {
      const std::size_t cols =
          is_quantised(dtype) ? blocks * info(dtype).block_elements : 32 * blocks;
      const std::size_t rows = 32 * blocks + 17;  // a last panel of one group and one lane
      const RandomWeight weight = random_weight(dtype, rows, cols, rng);
      const std::vector<float> x = random_floats(140 * cols, rng);
      // Up to 32 rows are the AVX-512 kernels'; tiles of 11 to 16 rows, in two sizes; more tiles
      // than a chunk has; so many that threads share by rows.
      for (const std::size_t m : {1, 7, 16, 32, 33, 34, 40, 49, 64, 100, 140}) {
        const Product product{m, rows + m % 3, m % 2 == 1};
        const std::vector<float> want = multiply(**scalar, weight, x.data(), product);
        for (const NamedBackend& named : backends) {
          testing::expect_same_bits(
              multiply(*named.backend, weight, x.data(), product),
              want,
              fmt::format("{} {} m {} k {}", named.name, info(dtype).name, m, cols));
        }
      }
    }
  }
}

TEST(Amx, ManyRowsAreSharedOutByRowsWithTheSameBits) {
  const std::vector<NamedBackend> backends =
      amx_backends(testing::emulated_amx_kernels(), FloatPath::Exact);
  CpuOptions options;
  options.isa = CpuIsa::Scalar;
  options.threads = 1;
  const auto scalar = make_cpu_backend(options);
  ASSERT_TRUE(scalar);
  std::mt19937 rng(82);
  for (const DType dtype : {DType::Q4_1, DType::Q6_K}) {
    const RandomWeight weight = random_weight(dtype, 40, 512, rng);
    const std::size_t m = 1000;
    const std::vector<float> x = random_floats(m * weight.cols, rng);
    const std::vector<float> want = multiply(**scalar, weight, x.data(), {m, 40, false});
    for (const NamedBackend& named : backends) {
      testing::expect_same_bits(
          multiply(*named.backend, weight, x.data(), {m, 40, false}), want, named.name);
    }
  }
}

TEST(Amx, ZeroInfiniteAndUndefinedActivations) {
  std::mt19937 rng(83);
  const RandomWeight weight = random_weight(DType::Q8_0, 33, 64, rng);
  for (const NamedBackend& named :
       amx_backends(testing::emulated_amx_kernels(), FloatPath::Exact)) {
    std::vector<float> x(40 * 64, 0.0F);
    x[64] = 1e-38F;
    x[2 * 64] = HUGE_VALF;
    x[3 * 64] = NAN;
    const std::vector<float> y = multiply(*named.backend, weight, x.data(), {40, 33, false});
    for (std::size_t n = 0; n < 33; ++n) {
      EXPECT_EQ(y[n], 0.0F) << named.name;
      EXPECT_EQ(y[33 + n], 0.0F) << named.name;
      EXPECT_TRUE(std::isnan(y[66 + n])) << named.name;
      EXPECT_TRUE(std::isnan(y[99 + n])) << named.name;
      EXPECT_EQ(y[132 + n], 0.0F) << named.name;
    }
  }
}

// To nearest, ties to even, by way of the two neighbours.
float as_bfloat(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const float down = std::bit_cast<float>(bits & 0xFFFF0000U);
  const float up = std::bit_cast<float>((bits & 0xFFFF0000U) + 0x10000U);
  const double low = std::fabs(static_cast<double>(x) - down);
  const double high = std::fabs(static_cast<double>(up) - x);
  return low < high || (low == high && (bits & 0x10000U) == 0) ? down : up;
}

// One output of the amx_bf16 path, from its definition in amx_bfloat.h.
float bfloat_output(const float* x, const RandomWeight& weight, std::size_t n) {
  const std::byte* row = weight.bytes.data() + n * row_bytes(weight.dtype, weight.cols);
  float total = 0.0F;
  for (std::size_t k = 0; k < weight.cols; k += 32) {
    float chains[2] = {0.0F, 0.0F};
    for (std::size_t i = k; i < std::min(k + 32, weight.cols); ++i) {
      const auto w = static_cast<float>(testing::oracle_element(weight.dtype, row, i));
      chains[i % 2] = testing::tile_fma(as_bfloat(x[i]), w, chains[i % 2]);
    }
    total = testing::tile_add(total, testing::tile_add(chains[0], chains[1]));
  }
  return total;
}

TEST(Amx, BfloatProductsFollowTheirDefinitionWhateverTheRows) {
  const std::vector<NamedBackend> backends =
      amx_backends(testing::emulated_amx_bf16_kernels(), FloatPath::AmxBf16);
  std::mt19937 rng(84);
  for (const std::size_t cols : {32, 40, 37, 160}) {
    const std::size_t rows = 81;
    const RandomWeight weight = random_weight(DType::BF16, rows, cols, rng);
    const std::size_t total = 70;
    const std::vector<float> x = random_floats(total * cols, rng);
    std::vector<float> want(total * rows);
    for (std::size_t r = 0; r < total; ++r) {
      for (std::size_t n = 0; n < rows; ++n) {
        want[r * rows + n] = bfloat_output(x.data() + r * cols, weight, n);
      }
    }
    for (const std::size_t m : {1, 2, 12, 13, 16, 17, 32, 33, 64}) {
      const std::size_t first = total - m;
      const std::vector<float> part(want.begin() + static_cast<std::ptrdiff_t>(first * rows),
                                    want.end());
      for (const NamedBackend& named : backends) {
        testing::expect_same_bits(
            multiply(*named.backend, weight, x.data() + first * cols, {m, rows, false}),
            part,
            fmt::format("{} m {} k {}", named.name, m, cols));
      }
    }
  }
}

TEST(Amx, BfloatProductsAreCloseToFloat64) {
  std::mt19937 rng(85);
  const RandomWeight weight = random_weight(DType::BF16, 40, 576, rng);
  const std::vector<float> x = random_floats(3 * 576, rng);
  for (const NamedBackend& named :
       amx_backends(testing::emulated_amx_bf16_kernels(), FloatPath::AmxBf16)) {
    const std::vector<float> y = multiply(*named.backend, weight, x.data(), {3, 40, true});
    // Half a step of bfloat16 an element.
    testing::expect_near_float64(y, x, weight, 0.25, 0x1p-9 * 1.01, named.name);
  }
}

TEST(Amx, OtherWeightsKeepTheirBitsOnTheBfloatPath) {
  std::mt19937 rng(86);
  for (const DType dtype : {DType::F32, DType::F16, DType::Q4_K}) {
    const RandomWeight weight = random_weight(dtype, 33, 256, rng);
    const std::vector<float> x = random_floats(9 * 256, rng);
    std::vector<float> want;
    for (const NamedBackend& named : testing::cpu_backends()) {
      want = multiply(*named.backend, weight, x.data(), {9, 33, false});
      break;
    }
    for (const NamedBackend& named :
         amx_backends(testing::emulated_amx_bf16_kernels(), FloatPath::AmxBf16)) {
      testing::expect_same_bits(
          multiply(*named.backend, weight, x.data(), {9, 33, false}), want, named.name);
    }
  }
}

TEST(Amx, TheBfloatPathIsAnotherNumericsFamily) {
  const auto exact = amx_backends(testing::emulated_amx_kernels(), FloatPath::Exact);
  const auto bfloat = amx_backends(testing::emulated_amx_bf16_kernels(), FloatPath::AmxBf16);
  const std::uint64_t usual = testing::cpu_backends().front().backend->numerics_family();
  for (const NamedBackend& named : exact) {
    EXPECT_EQ(named.backend->numerics_family(), usual);
  }
  for (const NamedBackend& named : bfloat) {
    EXPECT_NE(named.backend->numerics_family(), usual);
  }
}

bool permit() {
  return true;
}
bool refuse() {
  return false;
}

TEST(KernelChoice, AutoTakesTheBestThereIs) {
  const auto chosen = [](const cpu::MachineIsa& machine) {
    const auto choice = cpu::choose_kernels(CpuIsa::Auto, FloatPath::Exact, machine);
    EXPECT_TRUE(choice);
    return choice->kernels;
  };
  EXPECT_EQ(chosen({}), cpu::scalar_kernels());
  EXPECT_EQ(chosen({.avx2 = true}), cpu::avx2_kernels());
  EXPECT_EQ(chosen({.avx2 = true, .avx512 = true}), cpu::avx512_kernels());
  // Tiles without AVX-512 are of no use, and are not asked for.
  EXPECT_EQ(chosen({.avx2 = true, .amx_int8 = true}), cpu::avx2_kernels());
}

TEST(KernelChoice, TheSelfCheckTellsAWrongTableFromARightOne) {
  ASSERT_NE(cpu::scalar_kernels(), nullptr);
  EXPECT_TRUE(cpu::equal_results(*cpu::scalar_kernels(), *cpu::scalar_kernels()));
  if (const cpu::KernelTable* amx = testing::emulated_amx_kernels(); amx != nullptr) {
    EXPECT_TRUE(cpu::equal_results(*amx, *cpu::scalar_kernels()));
    cpu::KernelTable wrong = *amx;
    wrong.quantise = testing::emulated_avx512_kernels()->quantise;  // codes in another order
    EXPECT_FALSE(cpu::equal_results(wrong, *cpu::scalar_kernels()));
    wrong = *amx;
    wrong.attend_rows = [](const cpu::AttentionJob& job) {
      testing::emulated_amx_kernels()->attend_rows(job);
      job.out[0] += 1.0F;
    };
    EXPECT_FALSE(cpu::equal_results(wrong, *cpu::scalar_kernels()));
  }
}

TEST(KernelChoice, AmxThatIsWrongLeavesAvx512AndANote) {
  const cpu::MachineIsa machine{true, true, true, true, permit, refuse};
  const auto choice = cpu::choose_kernels(CpuIsa::Auto, FloatPath::Exact, machine);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kernels, cpu::avx512_kernels());
  EXPECT_NE(choice->note.find("other results"), std::string::npos);
  EXPECT_FALSE(cpu::choose_kernels(CpuIsa::Auto, FloatPath::AmxBf16, machine));
}

TEST(KernelChoice, RefusedTilesLeaveAvx512AndANote) {
  const cpu::MachineIsa machine{true, true, true, true, refuse, nullptr};
  const auto choice = cpu::choose_kernels(CpuIsa::Auto, FloatPath::Exact, machine);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kernels, cpu::avx512_kernels());
  EXPECT_NE(choice->note.find("refuses AMX"), std::string::npos);
  const auto backend = cpu::make_backend(*cpu::scalar_kernels(), {.threads = 1}, choice->note);
  ASSERT_TRUE(backend);
  EXPECT_NE((*backend)->description().find("refuses AMX"), std::string::npos);
  const auto asked = cpu::choose_kernels(CpuIsa::Amx, FloatPath::Exact, machine);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, ErrorCode::InvalidConfig);
}

TEST(KernelChoice, WhatTheMachineLacksIsNamed) {
  const auto message = [](CpuIsa isa, FloatPath path, const cpu::MachineIsa& machine) {
    const auto choice = cpu::choose_kernels(isa, path, machine);
    return choice ? std::string("none") : choice.error().message;
  };
  const cpu::MachineIsa nothing;
  const cpu::MachineIsa no_bf16{true, true, true, false, permit, permit};
  EXPECT_NE(message(CpuIsa::Avx2, FloatPath::Exact, nothing).find("AVX2"), std::string::npos);
  EXPECT_NE(message(CpuIsa::Avx512, FloatPath::Exact, nothing).find("AVX-512"), std::string::npos);
  EXPECT_NE(message(CpuIsa::Amx, FloatPath::Exact, nothing).find("AMX-INT8"), std::string::npos);
  EXPECT_NE(message(CpuIsa::Auto, FloatPath::AmxBf16, no_bf16).find("AMX-BF16"), std::string::npos);
  EXPECT_NE(message(CpuIsa::Avx2, FloatPath::AmxBf16, no_bf16).find("isa auto or amx"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::kernels
