// Every quantised type against a decoder written independently, and against bytes and values worked
// out from the format's definition; and a packed weight against the file's values, through `embed`.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "kernels/gguf_blocks.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::random_weight;
using testing::RandomWeight;

std::vector<float> dequantise(const RandomWeight& weight) {
  std::vector<float> out(weight.rows * weight.cols);
  for (std::size_t r = 0; r < weight.rows; ++r) {
    dequantise_row(weight.dtype,
                   weight.bytes.data() + r * row_bytes(weight.dtype, weight.cols),
                   weight.cols,
                   out.data() + r * weight.cols);
  }
  return out;
}

TEST(Dequantise, AgreesWithTheIndependentDecoder) {
  std::mt19937 rng(1);
  for (const DType dtype : testing::kAllTypes) {
    const RandomWeight weight = random_weight(dtype, 5, 1024, rng);
    const std::vector<float> got = dequantise(weight);
    const std::vector<double> want = testing::oracle_values(weight);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::fabs(got[i] - want[i]));
    }
    // Types without a min are exact; the others round their last addition.
    EXPECT_LE(worst, quant_shape(dtype).has_min ? 5e-7 : 0.0) << info(dtype).name;
  }
}

// A block with bytes counting up behind its scales, and some values.
TEST(Dequantise, KnownBytes) {
  struct Known {
    DType dtype;
    std::size_t scales_at;  // f16 1.0 (0x3C00)
    std::size_t mins_at;    // f16 0.5 (0x3800); 0: none
    std::vector<std::pair<std::size_t, float>> values;
  };
  const std::vector<Known> cases = {
      // byte i of the block holds i * 37 mod 256
      {DType::Q4_0, 0, 0, {{0, 2.0F}, {1, 7.0F}, {16, -4.0F}, {31, -1.0F}}},
      {DType::Q4_1, 0, 2, {{0, 4.5F}, {1, 9.5F}, {16, 9.5F}, {17, 11.5F}}},
      {DType::Q5_0, 0, 0, {{0, -2.0F}, {1, 3.0F}, {16, -3.0F}, {17, -16.0F}}},
      {DType::Q8_0, 0, 0, {{0, 74.0F}, {1, 111.0F}, {2, -108.0F}, {31, -59.0F}}},
  };
  for (const Known& known : cases) {
    std::vector<std::byte> block(info(known.dtype).block_bytes);
    for (std::size_t i = 0; i < block.size(); ++i) {
      block[i] = static_cast<std::byte>(i * 37);
    }
    block[known.scales_at] = std::byte{0};
    block[known.scales_at + 1] = std::byte{0x3C};
    if (known.mins_at != 0) {
      block[known.mins_at] = std::byte{0};
      block[known.mins_at + 1] = std::byte{0x38};
    }
    std::array<float, 256> out{};
    dequantise_row(known.dtype, block.data(), info(known.dtype).block_elements, out.data());
    for (const auto& [i, value] : known.values) {
      EXPECT_EQ(out[i], value) << info(known.dtype).name << " element " << i;
    }
  }
}

TEST(Dequantise, APackedWeightHoldsTheFilesValues) {
  std::mt19937 rng(2);
  for (const testing::NamedBackend& named : testing::all_backends()) {
    for (const DType dtype : testing::kAllTypes) {
      const RandomWeight weight = random_weight(dtype, 45, 512, rng);
      auto packed = named.backend->pack(weight.view());
      ASSERT_TRUE(packed) << packed.error().message;
      std::vector<TokenId> ids(weight.rows);
      std::iota(ids.begin(), ids.end(), 0);
      std::vector<float> got(weight.rows * weight.cols);
      named.backend->embed(**packed, ids, 1.0F, got.data());
      testing::expect_same_bits(
          got, dequantise(weight), named.name + " " + std::string(info(dtype).name));
    }
  }
}

TEST(Dequantise, ImpossibleShapesAreRefused) {
  const std::vector<std::byte> bytes(1000);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  auto cpu = make_cpu_backend({});
  ASSERT_TRUE(cpu);
  for (Backend* backend : {reference.get(), cpu->get()}) {
    for (const WeightView& view : {WeightView{DType::Q4_0, 1, 33, bytes},
                                   WeightView{DType::Q4_0, 2, 32, bytes},
                                   WeightView{DType::F32, 0, 32, bytes},
                                   WeightView{DType::Q6_K, 4, 0, bytes},
                                   WeightView{DType::F16, std::size_t{1} << 62, 4, bytes}}) {
      const auto packed = backend->pack(view);
      ASSERT_FALSE(packed);
      EXPECT_EQ(packed.error().code, ErrorCode::InvalidModel);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
