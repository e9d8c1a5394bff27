// The AVX512-BF16 kernels over a model of the instructions, and on real ones where they are: BF16
// weights as their definition says, whatever the rows, threads and shapes; everything else as on
// the exact path; and who may compute together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernel_choice.h"
#include "kernels/gguf_blocks.h"
#include "tests/support/emulated_kernels.h"
#include "tests/support/tile_model.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using ::testing::HasSubstr;
using testing::NamedBackend;
using testing::random_floats;
using testing::random_weight;
using testing::RandomWeight;

class Bfloat : public ::testing::Test {
 protected:
  // The emulated table with 1 and 2 threads, and the real one.
  void SetUp() override {
    for (const unsigned threads : {1U, 2U}) {
      CpuOptions options;
      options.threads = threads;
      options.float_path = FloatPath::Avx512Bf16;
      if (const auto* table = testing::emulated_avx512_bf16_kernels(); table != nullptr) {
        add(cpu::make_backend(*table, options));
      }
      add(make_cpu_backend(options));
    }
    if (backends_.empty()) {
      GTEST_SKIP() << "this machine has neither AVX512-BF16 nor the AVX2 to emulate it";
    }
  }

  std::vector<NamedBackend> backends_;

 private:
  void add(Result<std::unique_ptr<Backend>> backend) {
    if (backend) {
      std::string name = (*backend)->description();
      backends_.push_back({std::move(name), std::move(*backend)});
    }
  }
};

std::vector<float> multiply(Backend& backend,
                            const RandomWeight& weight,
                            const float* x,
                            std::size_t m,
                            std::size_t stride,
                            bool accumulate = false) {
  auto packed = backend.pack(weight.view());
  EXPECT_TRUE(packed);
  std::vector<float> y(m * stride, 0.25F);
  const MatmulOut out{packed->get(), y.data(), stride, accumulate};
  backend.matmul(x, m, {&out, 1});
  return y;
}

// To nearest, ties to even, by way of the two neighbours; denormals are zeros.
float rounded(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (std::fabs(x) < std::numeric_limits<float>::min()) {
    return std::copysign(0.0F, x);
  }
  const float down = std::bit_cast<float>(bits & 0xFFFF0000U);
  const float up = std::bit_cast<float>((bits & 0xFFFF0000U) + 0x10000U);
  const double low = std::fabs(static_cast<double>(x) - down);
  const double high = std::fabs(static_cast<double>(up) - x);
  return low < high || (low == high && (bits & 0x10000U) == 0) ? down : up;
}

// One output, from its definition in bfloat_matmul.h.
float output(const float* x, const RandomWeight& weight, std::size_t n) {
  const std::byte* row = weight.bytes.data() + n * row_bytes(weight.dtype, weight.cols);
  float sum = 0.0F;
  for (std::size_t k = 0; k < weight.cols; k += 2) {
    for (const std::size_t i : {k + 1, k}) {
      const bool inside = i < weight.cols;
      const auto w =
          inside ? static_cast<float>(testing::oracle_element(weight.dtype, row, i)) : 0.0F;
      sum = testing::tile_fma(inside ? rounded(x[i]) : 0.0F, w, sum);
    }
  }
  return sum;
}

std::vector<float> outputs(const std::vector<float>& x, const RandomWeight& weight) {
  std::vector<float> out;
  for (std::size_t r = 0; r < x.size() / weight.cols; ++r) {
    for (std::size_t n = 0; n < weight.rows; ++n) {
      out.push_back(output(x.data() + r * weight.cols, weight, n));
    }
  }
  return out;
}

TEST_F(Bfloat, ProductsFollowTheirDefinitionWhateverTheRows) {
  std::mt19937 rng(91);
  for (const std::size_t cols : {1, 32, 37, 40, 62, 160}) {
    const std::size_t rows = 81;  // a last panel of one group and one lane
    const std::size_t total = 100;
    const RandomWeight weight = random_weight(DType::BF16, rows, cols, rng);
    const std::vector<float> x = random_floats(total * cols, rng);
    const std::vector<float> want = outputs(x, weight);
    // One tile and several, of equal and of two sizes; rows that each thread rounds for itself; so
    // many that threads share by rows.
    for (const std::size_t m : {1, 2, 4, 5, 11, 12, 13, 24, 31, 100}) {
      const std::size_t first = total - m;
      for (const NamedBackend& named : backends_) {
        testing::expect_same_bits(
            multiply(*named.backend, weight, x.data() + first * cols, m, rows),
            std::vector<float>(want.begin() + static_cast<std::ptrdiff_t>(first * rows),
                               want.end()),
            fmt::format("{} m {} k {}", named.name, m, cols));
      }
    }
  }
}

TEST_F(Bfloat, MoreTilesThanTheCacheHoldsAreTakenInChunks) {
  std::mt19937 rng(92);
  const std::size_t cols = 6000;  // four tiles a chunk
  const RandomWeight weight = random_weight(DType::BF16, 33, cols, rng);
  const std::vector<float> x = random_floats(61 * cols, rng);
  const std::vector<float> want = outputs(x, weight);
  for (const NamedBackend& named : backends_) {
    testing::expect_same_bits(multiply(*named.backend, weight, x.data(), 61, 33), want, named.name);
  }
}

TEST_F(Bfloat, SumsAreAddedToWhatIsThereAndStayInTheirColumns) {
  std::mt19937 rng(93);
  const RandomWeight weight = random_weight(DType::BF16, 50, 64, rng);
  const std::vector<float> x = random_floats(14 * 64, rng);
  const std::vector<float> sums = outputs(x, weight);
  for (const NamedBackend& named : backends_) {
    const std::vector<float> y = multiply(*named.backend, weight, x.data(), 14, 53, true);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t n = i % 53;
      EXPECT_EQ(y[i], n < 50 ? 0.25F + sums[i / 53 * 50 + n] : 0.25F) << named.name << " " << i;
    }
  }
}

TEST_F(Bfloat, ActivationsBetweenTwoBfloatsAndOnesThatAreNoUsualNumber) {
  RandomWeight weight{DType::BF16, 3, 4, std::vector<std::byte>(3 * 4 * 2)};
  const std::uint16_t values[] = {0x3F80, 0, 0, 0, 0x3F80, 0, 0, 0x3F80, 0x3F80, 0xBF80, 1, 0};
  std::memcpy(weight.bytes.data(), values, sizeof(values));
  const float tie_down = std::bit_cast<float>(0x3F808000U);  // halfway, to the even one below
  const float tie_up = std::bit_cast<float>(0x3F818000U);
  const std::vector<float> x = {tie_down,
                                1,
                                0,
                                tie_up,  // 1, and 1 + 1.015625
                                1e-39F,
                                0,
                                0,
                                1,  // a denormal is a zero
                                3.4e38F,
                                0,
                                0,
                                1,  // rounded beyond the largest
                                std::bit_cast<float>(0x3F808001U),
                                1e-39F,
                                1e38F,
                                0,
                                HUGE_VALF,
                                1,
                                1,
                                1,
                                NAN,
                                1,
                                1,
                                1};
  for (const NamedBackend& named : backends_) {
    const std::vector<float> y = multiply(*named.backend, weight, x.data(), 6, 3);
    EXPECT_EQ(y[0], 1.0F) << named.name;
    EXPECT_EQ(y[1], 1.0F + 0x1.04p0F) << named.name;
    EXPECT_EQ(y[2], 0.0F) << named.name;
    EXPECT_EQ(y[3], 0.0F) << named.name;
    EXPECT_EQ(y[4], 1.0F) << named.name;
    EXPECT_EQ(y[6], HUGE_VALF) << named.name;
    EXPECT_EQ(y[9], 0x1.02p0F) << named.name;
    EXPECT_EQ(y[11], 0x1.02p0F) << named.name;  // a denormal weight times 1e38 is nothing
    EXPECT_EQ(y[12], HUGE_VALF) << named.name;
    for (std::size_t n = 0; n < 3; ++n) {
      EXPECT_TRUE(std::isnan(y[15 + n])) << named.name;
    }
  }
}

TEST_F(Bfloat, ProductsAreCloseToFloat64) {
  std::mt19937 rng(94);
  const RandomWeight weight = random_weight(DType::BF16, 40, 576, rng);
  const std::vector<float> x = random_floats(3 * 576, rng);
  for (const NamedBackend& named : backends_) {
    const std::vector<float> y = multiply(*named.backend, weight, x.data(), 3, 40);
    // Half a step of BF16 an element.
    testing::expect_near_float64(y, x, weight, 0, 0x1p-9 * 1.01, named.name);
  }
}

// One product of weights that take floats, codes and pairs, as mixed files have them.
TEST_F(Bfloat, OtherWeightsKeepTheirBitsBesideBfloatOnes) {
  std::mt19937 rng(95);
  const auto exact = make_cpu_backend({.threads = 1, .isa = CpuIsa::Scalar});
  ASSERT_TRUE(exact);
  const DType types[] = {DType::F32, DType::BF16, DType::Q4_K, DType::F16, DType::Q8_0};
  std::vector<RandomWeight> weights;
  for (const DType dtype : types) {
    weights.push_back(random_weight(dtype, 70, 256, rng));
  }
  for (const std::size_t m : {1, 9, 110}) {
    const std::vector<float> x = random_floats(m * 256, rng);
    for (const NamedBackend& named : backends_) {
      std::vector<std::unique_ptr<PackedMatrix>> packed;
      std::vector<std::vector<float>> got(weights.size(), std::vector<float>(m * 70));
      std::vector<MatmulOut> outs;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        auto weight = named.backend->pack(weights[i].view());
        ASSERT_TRUE(weight);
        packed.push_back(std::move(*weight));
        outs.push_back({packed.back().get(), got[i].data(), 70, false});
      }
      named.backend->matmul(x.data(), m, outs);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        testing::expect_same_bits(got[i],
                                  types[i] == DType::BF16
                                      ? outputs(x, weights[i])
                                      : multiply(**exact, weights[i], x.data(), m, 70),
                                  fmt::format("{} {} m {}", named.name, info(types[i]).name, m));
      }
    }
  }
}

TEST_F(Bfloat, RowsOfATableOfEmbeddingsAreExact) {
  std::mt19937 rng(96);
  for (const std::size_t cols : {64, 37}) {
    const RandomWeight weight = random_weight(DType::BF16, 45, cols, rng);
    const std::vector<double> want = testing::oracle_values(weight);
    const TokenId ids[] = {44, 0, 31, 32};
    for (const NamedBackend& named : backends_) {
      auto packed = named.backend->pack(weight.view());
      ASSERT_TRUE(packed);
      std::vector<float> out(4 * cols);
      named.backend->embed(**packed, ids, 2.0F, out.data());
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto row = static_cast<std::size_t>(ids[i / cols]);
        EXPECT_EQ(out[i], 2 * want[row * cols + i % cols]) << named.name << " " << i;
      }
    }
  }
}

TEST_F(Bfloat, IsANumericsFamilyOfItsOwn) {
  const std::uint64_t family = backends_.front().backend->numerics_family();
  // If this fails on real hardware alone, its VDPBF16PS rounds unlike the published definition:
  // such nodes work among themselves, and the tests above fail there.
  for (const NamedBackend& named : backends_) {
    EXPECT_EQ(named.backend->numerics_family(), family) << named.name;
  }
  EXPECT_NE(family, testing::cpu_backends().front().backend->numerics_family());
  if (const auto* amx = testing::emulated_amx_bf16_kernels(); amx != nullptr) {
    EXPECT_NE(family, (*cpu::make_backend(*amx, {.threads = 1}))->numerics_family());
  }
}

TEST_F(Bfloat, AProcessorThatAddsInAnotherOrderIsAnotherFamily) {
  const auto* odd = testing::emulated_avx512_bf16_kernels();
  const auto* even = testing::even_first_bf16_kernels();
  if (odd == nullptr) {
    GTEST_SKIP() << "nothing to emulate it with";
  }
  EXPECT_EQ(odd->probe(), odd->probe());
  EXPECT_NE((*cpu::make_backend(*odd, {.threads = 1}))->numerics_family(),
            (*cpu::make_backend(*even, {.threads = 1}))->numerics_family());
}

TEST(KernelChoice, FloatPathsHaveTheNamesOfTheConfiguration) {
  EXPECT_EQ(float_path_named("exact"), FloatPath::Exact);
  EXPECT_EQ(float_path_named("amx_bf16"), FloatPath::AmxBf16);
  EXPECT_EQ(float_path_named("avx512_bf16"), FloatPath::Avx512Bf16);
  EXPECT_EQ(float_path_named("bf16"), std::nullopt);
}

TEST(KernelChoice, Avx512Bf16IsTakenWhereItIsAskedForAndThere) {
  const cpu::MachineIsa zen{.avx2 = true, .avx512 = true, .avx512_bf16 = true};
  const auto table = [&](CpuIsa isa, FloatPath path) {
    const auto choice = cpu::choose_kernels(isa, path, zen);
    return choice ? choice->kernels : nullptr;
  };
  EXPECT_EQ(table(CpuIsa::Auto, FloatPath::Exact), cpu::avx512_kernels());
  EXPECT_EQ(table(CpuIsa::Auto, FloatPath::Avx512Bf16), cpu::avx512_bf16_kernels());
  EXPECT_EQ(table(CpuIsa::Avx512, FloatPath::Avx512Bf16), cpu::avx512_bf16_kernels());
}

TEST(KernelChoice, AMachineWithoutAvx512Bf16IsToldWhatToUse) {
  const auto message =
      [](CpuIsa isa, const cpu::MachineIsa& machine, FloatPath path = FloatPath::Avx512Bf16) {
        const auto choice = cpu::choose_kernels(isa, path, machine);
        return choice ? std::string("none") : choice.error().message;
      };
  const cpu::MachineIsa avx512{.avx2 = true, .avx512 = true};
  const cpu::MachineIsa amx{.avx2 = true, .avx512 = true, .amx_int8 = true, .amx_bf16 = true};
  const cpu::MachineIsa zen{.avx2 = true, .avx512 = true, .avx512_bf16 = true};
  EXPECT_EQ(message(CpuIsa::Auto, avx512),
            "this processor has no AVX512-BF16; use float_path exact");
  EXPECT_THAT(message(CpuIsa::Auto, amx), HasSubstr("use float_path exact or amx_bf16"));
  EXPECT_THAT(message(CpuIsa::Avx2, zen), HasSubstr("needs isa auto or avx512"));
  EXPECT_EQ(message(CpuIsa::Auto, zen, FloatPath::AmxBf16),
            "this processor has no AMX-BF16; use float_path exact or avx512_bf16");
}

}  // namespace
}  // namespace baton::kernels
