// Keys and values as the write kernel lays them out: byte for byte what the reference backend
// writes, and what the CPU backend therefore reads.
#include "kernels/cuda/kv_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/arena_pages.h"
#include "kernels/ops.h"
#include "tests/support/cuda_emulator.h"
#include "tests/unit/kernels/float_rows.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::launch;
using baton::testing::ThreadOrder;
using kernels::testing::random_floats;

TEST(CudaKvWrite, LeavesTheBytesThatTheReferenceLeaves) {
  std::mt19937 rng(51);
  const auto reference = make_reference_backend();
  for (const KvDType dtype : {KvDType::F16, KvDType::F32, KvDType::I8, KvDType::F8, KvDType::I16}) {
    for (const std::uint32_t head_dim : {20U, 64U, 128U}) {
      const KvLayout layout{2, 3, head_dim, 16, dtype};
      const std::size_t width = 2 * head_dim + 7;
      // The last two of three heads, for two sequences: one at the beginning, one across blocks.
      AttentionParams params;
      params.layer = 1;
      params.heads = 2;
      params.kv_heads = 2;
      params.first_kv_head = 1;
      params.head_dim = head_dim;
      const std::vector<BlockId> tables{BlockId{4}, BlockId{0}, BlockId{3}};
      const AttentionSlice slices[] = {{0, 5, 0, std::span(tables).first(1)},
                                       {5, 9, 11, std::span(tables).subspan(1)}};
      std::vector<float> k = random_floats(14 * width, rng);
      const std::vector<float> v = random_floats(14 * width, rng, 100.0F);
      std::fill_n(k.begin(), head_dim, 0.0F);
      std::vector<std::byte> want(2 * 5 * layout.block_bytes(), std::byte{0xAB});
      std::vector<std::byte> got = want;
      reference->write_kv({want.data(), layout, 5}, params, slices, k.data(), v.data(), width);
      std::vector<RowPlace> places;
      for (std::uint32_t i = 0; i < 14; ++i) {
        places.push_back(i < 5 ? RowPlace{i, 0} : RowPlace{11 + i - 5, 1});
      }
      const std::uint32_t ids[] = {4, 0, 3};
      const KvWriteArgs args{.pages = pages_of({got.data(), layout, 5}, params.layer, ids),
                             .rows = places.data(),
                             .keys = k.data(),
                             .values = v.data(),
                             .stride = width,
                             .num_rows = 14,
                             .first_kv_head = 1,
                             .kv_heads = 2};
      launch(write_kv, kv_write_shape(args), args, ThreadOrder::Descending);
      EXPECT_TRUE(got == want) << to_string(dtype) << " " << head_dim;
    }
  }
}

TEST(CudaKvWrite, ARowThatPadsAStepIsWrittenNowhere) {
  const KvLayout layout{1, 2, 16, 16, KvDType::I8};
  std::mt19937 rng(52);
  const std::vector<float> rows = random_floats(std::size_t{3} * 32, rng);
  const std::uint32_t ids[] = {1, 0};
  const auto written = [&](std::vector<RowPlace> places) {
    std::vector<std::byte> arena(2 * layout.block_bytes(), std::byte{0xAB});
    const KvWriteArgs args{.pages = pages_of({arena.data(), layout, 2}, 0, ids),
                           .rows = places.data(),
                           .keys = rows.data(),
                           .values = rows.data(),
                           .stride = 32,
                           .num_rows = static_cast<std::uint32_t>(places.size()),
                           .first_kv_head = 0,
                           .kv_heads = 2};
    launch(write_kv, kv_write_shape(args), args);
    return arena;
  };
  EXPECT_EQ(written({{17, 0}, {kNowhere, 0}, {kNowhere, 0}}), written({{17, 0}}));
}

}  // namespace
}  // namespace baton::kernels::cuda
