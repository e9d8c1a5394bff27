#include "engine/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/engine_kv/small_blocks.h"

namespace baton::engine {
namespace {

TEST(BlockPool, LeaseReturnsOnDrop) {
  BlockPool pool(shape(4));
  {
    auto leases = pool.acquire(3);
    ASSERT_TRUE(leases);
    EXPECT_EQ(pool.free(), 1U);
    EXPECT_EQ(pool.count(BlockUse::InUse), 3U);
    BlockLease moved = std::move(leases->front());
    EXPECT_FALSE(leases->front());
    EXPECT_TRUE(moved);
  }
  EXPECT_EQ(pool.free(), 4U);
  pool.check_invariants();
}

TEST(BlockPool, GivesAllOrNothing) {
  BlockPool pool(shape(4));
  auto held = pool.acquire(3);
  auto more = pool.acquire(2);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::NoBlocks);
  EXPECT_EQ(pool.free(), 1U);
}

TEST(BlockPool, PrefersTheSmallestRunThatFits) {
  BlockPool pool(shape(12));
  auto all = pool.acquire(12);
  ASSERT_TRUE(all);
  for (const int i : {1, 2, 3, 4, 7, 8}) {  // holes of four and of two
    (*all)[i].reset();
  }
  pool.check_invariants();
  auto two = pool.acquire(2);
  ASSERT_TRUE(two);
  const auto runs = to_runs(std::span<const BlockLease>(*two));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].first, BlockId{7});
  auto five = pool.acquire(5);
  EXPECT_FALSE(five);
  auto four = pool.acquire(4);
  ASSERT_TRUE(four);
  EXPECT_EQ(to_runs(std::span<const BlockLease>(*four)).size(), 1U);
}

TEST(BlockPool, CountsBlocksByUse) {
  BlockPool pool(shape(3));
  auto leases = pool.acquire(2);
  ASSERT_TRUE(leases);
  (*leases)[0].mark(BlockUse::Granted);
  EXPECT_EQ(pool.count(BlockUse::Granted), 1U);
  EXPECT_EQ(pool.count(BlockUse::InUse), 1U);
  (*leases)[0].mark(BlockUse::Quarantined);
  leases->clear();
  EXPECT_EQ(pool.count(BlockUse::Quarantined), 0U);
  EXPECT_EQ(pool.free(), 3U);
}

TEST(BlockPool, RandomOperationsKeepTheBooks) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    BlockPool pool(shape(97));
    std::vector<std::vector<BlockLease>> held;
    std::uint32_t out = 0;
    for (int step = 0; step < 400; ++step) {
      if (held.empty() || random() % 2 == 0) {
        const std::uint32_t count = random() % 12;
        auto leases = pool.acquire(count);
        ASSERT_EQ(leases.has_value(), count <= 97 - out) << "seed " << seed;
        if (leases) {
          out += count;
          held.push_back(std::move(*leases));
        }
      } else {
        auto& group = held[random() % held.size()];
        if (!group.empty()) {
          std::swap(group.back(), group[random() % group.size()]);
          group.pop_back();
          --out;
        }
        std::erase_if(held, [](const auto& g) { return g.empty(); });
      }
      std::set<std::uint32_t> ids;
      for (const auto& group : held) {
        for (const auto& lease : group) {
          ASSERT_TRUE(ids.insert(lease.id().value).second) << "handed out twice, seed " << seed;
        }
      }
      ASSERT_EQ(pool.free(), 97 - out);
      pool.check_invariants();
    }
  }
}

TEST(BlockPoolDeathTest, DestructorAssertsNoneOut) {
  EXPECT_DEATH(
      {
        BlockLease survivor;
        {
          BlockPool pool(shape(2));
          auto leases = pool.acquire(1);
          survivor = std::move(leases->front());
        }
      },
      "still leased");
}

}  // namespace
}  // namespace baton::engine
