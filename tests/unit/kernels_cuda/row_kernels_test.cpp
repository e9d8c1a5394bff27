// Kernels on single rows: norms, rotary embedding, gated activations, sums, soft caps, experts.
// Against the reference backend, which sums in double, and bit for bit whatever the batch.
#include <algorithm>
#include <memory>
#include <random>
#include <span>

#include "kernels/cuda/hadamard.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
#include "kernels/ops.h"
#include "tests/unit/kernels_cuda/emulated_rows.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::launch;
using namespace testing;

std::unique_ptr<Backend> oracle() {
  return make_reference_backend();
}

TEST(CudaRows, RmsNorm) {
  std::mt19937 rng(31);
  for (const std::uint32_t dim : {1U, 33U, 576U, 2049U}) {
    const std::vector<float> x = random_floats(kRows * dim, rng, 3.0F);
    const std::vector<float> weight = random_floats(dim, rng);
    std::vector<float> want(x.size());
    oracle()->rms_norm(x.data(), kRows, dim, weight.data(), 1e-5F, want.data());
    expect_rows(fmt::format("rms_norm {}", dim),
                want,
                2e-6,
                [&](std::size_t first, std::size_t count, ThreadOrder order) {
                  std::vector<float> out(count * dim);
                  std::copy_n(x.data() + first * dim, out.size(), out.data());
                  RmsNormArgs args{.x = out.data(), .weight = weight.data(), .out = out.data()};
                  args.rows = static_cast<std::uint32_t>(count);
                  args.dim = dim;
                  args.eps = 1e-5F;
                  launch(rms_norm, rms_norm_shape(args), args, order);
                  return out;
                });
  }
}

TEST(CudaRows, RopeOfBothStyles) {
  std::mt19937 rng(32);
  constexpr std::size_t kPositions = 100;
  for (const bool interleaved : {false, true}) {
    for (const std::uint32_t half : {5U, 32U, 64U}) {
      const std::uint32_t head_dim = 2 * half + (half == 32 ? 8 : 0);  // a tail that does not turn
      const std::uint32_t heads = 3;
      const std::size_t width = heads * head_dim;
      const std::size_t stride = width + 5;
      const std::vector<float> cosines = random_floats(kPositions * half, rng, 0.5F);
      const std::vector<float> sines = random_floats(kPositions * half, rng, 0.5F);
      std::vector<std::uint32_t> positions(kRows);
      for (std::uint32_t& position : positions) {
        position = static_cast<std::uint32_t>(rng() % kPositions);
      }
      const std::vector<float> x = random_floats(kRows * stride, rng);
      std::vector<float> want = x;
      oracle()->rope(want.data(),
                     kRows,
                     stride,
                     heads,
                     head_dim,
                     positions,
                     {kPositions, half, cosines, sines},
                     interleaved ? RopeStyle::Interleaved : RopeStyle::Halves);
      expect_rows(fmt::format("rope {} {}", interleaved ? "pairs" : "halves", half),
                  want,
                  5e-5,
                  [&](std::size_t first, std::size_t count, ThreadOrder order) {
                    const auto from = x.begin() + static_cast<std::ptrdiff_t>(first * stride);
                    std::vector<float> out(from,
                                           from + static_cast<std::ptrdiff_t>(count * stride));
                    RopeArgs args{.x = out.data(), .stride = stride};
                    args.positions = positions.data() + first;
                    args.cosines = cosines.data();
                    args.sines = sines.data();
                    args.rows = static_cast<std::uint32_t>(count);
                    args.heads = heads;
                    args.head_dim = head_dim;
                    args.half_dim = half;
                    args.interleaved = interleaved;
                    launch(rope, rope_shape(args), args, order);
                    return out;
                  });
    }
  }
}

TEST(CudaRows, Hadamard) {
  std::mt19937 rng(34);
  for (const std::uint32_t size : {1U, 16U, 64U, 256U}) {
    const std::vector<float> x = random_floats(kRows * size, rng, 3.0F);
    std::vector<float> want = x;
    oracle()->hadamard(want.data(), kRows, size, 0.5F);
    expect_rows(
        fmt::format("hadamard {}", size),
        want,
        0,  // the same bits
        [&](std::size_t first, std::size_t count, ThreadOrder order) {
          std::vector<float> out(count * size);
          std::copy_n(x.data() + first * size, out.size(), out.data());
          const HadamardArgs args{out.data(), static_cast<std::uint32_t>(count), size, 0.5F};
          launch(hadamard, hadamard_shape(args), args, order);
          return out;
        });
  }
}

TEST(CudaRows, GatedActivations) {
  std::mt19937 rng(33);
  constexpr std::uint32_t kDim = 300;
  std::vector<float> gate = random_floats(kRows * kDim, rng, 4.0F);
  const std::vector<float> up = random_floats(kRows * kDim, rng);
  gate[0] = 100.0F;
  gate[1] = -100.0F;
  std::vector<float> want(gate.size());
  for (const bool gelu : {false, true}) {
    const auto reference = oracle();
    gelu ? reference->gelu_mul(gate.data(), up.data(), kRows, kDim, kDim, want.data())
         : reference->silu_mul(gate.data(), up.data(), kRows, kDim, kDim, want.data());
    expect_rows(gelu ? "gelu_mul" : "silu_mul",
                want,
                5e-6,
                [&](std::size_t first, std::size_t count, ThreadOrder order) {
                  std::vector<float> out(count * kDim);
                  const GatedArgs args{.gate = gate.data() + first * kDim,
                                       .up = up.data() + first * kDim,
                                       .out = out.data(),
                                       .stride = kDim,
                                       .dim = kDim};
                  launch(gelu ? gelu_mul : silu_mul,
                         pointwise_shape(static_cast<std::uint32_t>(count), kDim),
                         args,
                         order);
                  return out;
                });
  }
}

TEST(CudaRows, SumsWithRowsAndWithABias) {
  std::mt19937 rng(34);
  constexpr std::uint32_t kDim = 300;
  const std::vector<float> x = random_floats(kRows * kDim, rng);
  const std::vector<float> y = random_floats(kRows * kDim, rng);
  for (const bool bias : {false, true}) {
    std::vector<float> want = x;
    bias ? oracle()->add_bias(want.data(), kRows, kDim, y.data())
         : oracle()->add(want.data(), y.data(), want.size());
    std::vector<float> got = x;
    const AddArgs args{.x = got.data(), .y = y.data(), .y_stride = bias ? 0 : kDim, .dim = kDim};
    launch(add_rows, pointwise_shape(kRows, kDim), args);
    expect_same_bits(got, want, bias ? "add_bias" : "add");
  }
}

TEST(CudaRows, SoftCap) {
  std::mt19937 rng(35);
  constexpr std::uint32_t kDim = 300;
  const std::vector<float> x = random_floats(kRows * kDim, rng, 40.0F);
  std::vector<float> want = x;
  oracle()->softcap(want.data(), want.size(), 30.0F);
  expect_rows("softcap", want, 3e-4, [&](std::size_t first, std::size_t count, ThreadOrder order) {
    const auto from = x.begin() + static_cast<std::ptrdiff_t>(first * kDim);
    std::vector<float> out(from, from + static_cast<std::ptrdiff_t>(count * kDim));
    launch(softcap_rows,
           pointwise_shape(static_cast<std::uint32_t>(count), kDim),
           SoftcapArgs{.x = out.data(), .dim = kDim, .cap = 30.0F},
           order);
    return out;
  });
}

TEST(CudaRows, RoutingChoosesAsTheReferenceDoes) {
  std::mt19937 rng(36);
  for (const auto& [count, used] : {std::pair{8U, 2U}, {60U, 4U}, {128U, 8U}, {3U, 3U}}) {
    std::vector<float> logits = random_floats(kRows * count, rng, 2.0F);
    logits[1] = logits[0];  // equals: the lower index first
    for (const bool renormalise : {false, true}) {
      const RouteParams params{count, used, renormalise};
      std::vector<std::uint32_t> want_experts(kRows * used);
      std::vector<float> want(kRows * used);
      oracle()->route(logits.data(), kRows, params, want_experts.data(), want.data());
      expect_rows(fmt::format("route {} of {}", used, count),
                  want,
                  5e-6,
                  [&](std::size_t first, std::size_t rows, ThreadOrder order) {
                    std::vector<std::uint32_t> experts(rows * used);
                    std::vector<float> weights(rows * used);
                    const RouteArgs args{.logits = logits.data() + first * count,
                                         .experts = experts.data(),
                                         .weights = weights.data(),
                                         .rows = static_cast<std::uint32_t>(rows),
                                         .count = count,
                                         .used = used,
                                         .renormalise = renormalise};
                    launch(route_rows, route_shape(args), args, order);
                    const auto from =
                        want_experts.begin() + static_cast<std::ptrdiff_t>(first * used);
                    EXPECT_TRUE(std::equal(experts.begin(), experts.end(), from));
                    return weights;
                  });
    }
  }
}

TEST(CudaRows, RowsAreGatheredAndMixed) {
  std::mt19937 rng(37);
  constexpr std::uint32_t kDim = 300;
  constexpr std::size_t kUsed = 3;
  const std::vector<float> x = random_floats(20 * kDim, rng);
  std::vector<std::uint32_t> rows(kRows * kUsed);
  for (std::uint32_t& row : rows) {
    row = static_cast<std::uint32_t>(rng() % 20);
  }
  const std::vector<float> weights = random_floats(kRows * kUsed, rng);
  std::vector<float> want(kRows * kDim);
  oracle()->mix_rows(x.data(), kDim, rows, weights.data(), kUsed, want.data());
  expect_rows("mix_rows", want, 2e-5, [&](std::size_t first, std::size_t count, ThreadOrder order) {
    std::vector<float> out(count * kDim);
    const MixArgs args{.x = x.data(),
                       .rows = rows.data() + first * kUsed,
                       .weights = weights.data() + first * kUsed,
                       .out = out.data(),
                       .used = kUsed,
                       .dim = kDim};
    launch(mix_rows, pointwise_shape(static_cast<std::uint32_t>(count), kDim), args, order);
    return out;
  });
  std::vector<float> gathered(kRows * kDim);
  oracle()->gather_rows(x.data(), kDim, std::span(rows).first(kRows), gathered.data());
  std::vector<float> got(gathered.size());
  const MixArgs args{.x = x.data(), .rows = rows.data(), .out = got.data(), .dim = kDim};
  launch(mix_rows, pointwise_shape(kRows, kDim), args);
  expect_same_bits(got, gathered, "gather_rows");
}

}  // namespace
}  // namespace baton::kernels::cuda
