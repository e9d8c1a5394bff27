#include "transfer/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace baton::transfer {
namespace {

std::vector<BlockId> ids(std::initializer_list<std::uint32_t> values) {
  std::vector<BlockId> out;
  for (const std::uint32_t value : values) {
    out.emplace_back(value);
  }
  return out;
}

TEST(Plan, NeighboursOnBothSidesMerge) {
  std::vector<Piece> pieces;
  plan_layer(3, ids({4, 5, 6, 8, 9}), ids({10, 11, 20, 21, 22}), {100, 1000, 0, 64}, pieces);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].segments[0], (Segment{BlockId{4}, BlockId{10}, 2}));
  EXPECT_EQ(pieces[1].segments[0], (Segment{BlockId{6}, BlockId{20}, 1}));
  EXPECT_EQ(pieces[2].segments[0], (Segment{BlockId{8}, BlockId{21}, 2}));
  EXPECT_EQ(pieces[2].bytes, 200U);
  EXPECT_EQ(pieces[2].layer, 3U);
}

TEST(Plan, ABlockLargerThanTheLimitGoesWhole) {
  std::vector<Piece> pieces;
  plan_layer(0, ids({1, 2}), ids({1, 2}), {5000, 1000, 0, 64}, pieces);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].bytes, 5000U);
}

TEST(Plan, NothingGivesNothing) {
  std::vector<Piece> pieces;
  plan_layer(0, {}, {}, {100, 1000, 0, 64}, pieces);
  EXPECT_TRUE(pieces.empty());
}

// The oracle is a map from target block to source block.
TEST(Plan, RandomPlansCarryEachBlockOnceWithinTheLimits) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = rng() % 80;
    std::vector<std::uint32_t> from(100);
    std::vector<std::uint32_t> to(100);
    std::iota(from.begin(), from.end(), 0);
    std::iota(to.begin(), to.end(), 500);
    // Some swaps leave runs of neighbours.
    for (std::size_t i = 0; i < rng() % 30; ++i) {
      std::swap(from[rng() % 100], from[rng() % 100]);
      std::swap(to[rng() % 100], to[rng() % 100]);
    }
    std::vector<BlockId> sources;
    std::vector<BlockId> targets;
    std::map<std::uint32_t, std::uint32_t> want;
    for (std::size_t i = 0; i < count; ++i) {
      sources.emplace_back(from[i]);
      targets.emplace_back(to[i]);
      want[to[i]] = from[i];
    }
    const PlanLimits limits{1 + rng() % 200, 1 + rng() % 4000, rng() % 1000, 1 + rng() % 64};
    std::vector<Piece> pieces;
    plan_layer(7, sources, targets, limits, pieces);
    std::map<std::uint32_t, std::uint32_t> got;
    for (const Piece& piece : pieces) {
      ASSERT_FALSE(piece.segments.empty());
      ASSERT_LE(piece.segments.size(), limits.max_segments);
      std::size_t blocks = 0;
      for (const Segment& segment : piece.segments) {
        ASSERT_GT(segment.count, 0U);
        blocks += segment.count;
        for (std::uint32_t i = 0; i < segment.count; ++i) {
          ASSERT_TRUE(got.emplace(segment.target.value + i, segment.source.value + i).second);
        }
      }
      ASSERT_EQ(piece.bytes, blocks * limits.block_bytes);
      ASSERT_TRUE(piece.bytes <= limits.max_bytes || blocks == 1);
    }
    ASSERT_EQ(got, want);
  }
}

TEST(Plan, Expand) {
  const std::vector<BlockRun> runs{{BlockId{3}, 2}, {BlockId{9}, 0}, {BlockId{1}, 1}};
  EXPECT_EQ(expand(runs), ids({3, 4, 1}));
}

}  // namespace
}  // namespace baton::transfer
