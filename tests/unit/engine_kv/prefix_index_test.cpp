#include "engine/kv/prefix_index.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/kv/block_pool.h"
#include "engine/kv/block_table.h"
#include "tests/unit/engine_kv/small_blocks.h"

namespace baton::engine {
namespace {

std::vector<TokenId> sequence(std::size_t count, TokenId first) {
  std::vector<TokenId> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = first + static_cast<TokenId>(i);
  }
  return tokens;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  // A sequence that ran over `tokens` and ended.
  void remember(const std::vector<TokenId>& tokens) {
    BlockTable table({}, *pool_.acquire(static_cast<std::uint32_t>(tokens.size() / kBlock)));
    table.seal(index_, kBlock, tokens, static_cast<std::uint32_t>(tokens.size()));
  }

  BlockPool pool_{shape(16)};
  PrefixIndex index_{kBlock, true};
};

TEST_F(PrefixIndexTest, FindsTheLongestCommonChain) {
  auto tokens = sequence(kBlock * 3, 100);
  remember(tokens);
  EXPECT_EQ(index_.find(tokens, 99).num_blocks(), 3U);
  EXPECT_EQ(index_.find(tokens, 2).num_blocks(), 2U);
  tokens[kBlock * 2] = 9999;
  EXPECT_EQ(index_.peek(tokens, 99), 2U);
  tokens[0] = 9999;
  EXPECT_EQ(index_.find(tokens, 99).num_blocks(), 0U);
  EXPECT_EQ(index_.find(std::span(tokens).first(kBlock - 1), 99).num_blocks(), 0U);
}

TEST_F(PrefixIndexTest, EqualBlockUnderAnotherParentIsAnotherEntry) {
  auto a = sequence(kBlock * 2, 0);
  auto b = sequence(kBlock, 500);
  b.insert(b.end(), a.begin() + kBlock, a.end());
  remember(a);
  EXPECT_EQ(index_.find(b, 99).num_blocks(), 0U);
  remember(b);
  EXPECT_EQ(index_.num_blocks(), 4U);
  index_.check_invariants();
}

TEST_F(PrefixIndexTest, PinnedBlocksSurviveEviction) {
  const auto a = sequence(kBlock * 2, 0);
  const auto b = sequence(kBlock * 2, 500);
  remember(a);
  remember(b);
  PrefixRef pinned = index_.find(a, 1);
  EXPECT_EQ(index_.num_evictable(), 3U);
  EXPECT_EQ(index_.evict(99), 3U);
  EXPECT_EQ(index_.find(a, 99).num_blocks(), 1U);
  EXPECT_EQ(pool_.count(BlockUse::Cached), 1U);
  index_.check_invariants();
}

TEST_F(PrefixIndexTest, LeastRecentlyUsedLeafGoesFirst) {
  const auto a = sequence(kBlock * 2, 0);
  const auto b = sequence(kBlock * 2, 500);
  remember(a);
  remember(b);
  index_.find(a, 99).reset();
  index_.evict(1);
  EXPECT_EQ(index_.peek(a, 99), 2U);
  EXPECT_EQ(index_.peek(b, 99), 1U);
}

TEST_F(PrefixIndexTest, EqualWorkDoneTwiceKeepsOneCopy) {
  const auto a = sequence(kBlock * 2, 0);
  BlockTable first({}, *pool_.acquire(2));
  BlockTable second({}, *pool_.acquire(2));
  const std::vector<BlockId> before(second.ids().begin(), second.ids().end());
  first.seal(index_, kBlock, a, kBlock * 2);
  second.seal(index_, kBlock, a, kBlock * 2);
  EXPECT_EQ(index_.num_blocks(), 2U);
  EXPECT_EQ(pool_.count(BlockUse::InUse), 2U);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second.ids().begin()));
  second.clear();
  EXPECT_EQ(pool_.count(BlockUse::InUse), 0U);
  EXPECT_EQ(pool_.count(BlockUse::Cached), 2U);
  index_.check_invariants();
}

TEST_F(PrefixIndexTest, SwitchedOffItKeepsNothing) {
  PrefixIndex off(kBlock, false);
  BlockTable table({}, *pool_.acquire(1));
  table.seal(off, kBlock, sequence(kBlock, 0), kBlock);
  EXPECT_EQ(off.num_blocks(), 0U);
  EXPECT_EQ(off.find(sequence(kBlock, 0), 9).num_blocks(), 0U);
}

TEST(PrefixIndexFuzz, RandomOperationsKeepTheBooks) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    BlockPool pool(shape(24));
    PrefixIndex index(kBlock, true);
    std::vector<BlockTable> running;
    for (int step = 0; step < 500; ++step) {
      const auto kind = random() % 4;
      if (kind == 0 || running.empty()) {
        // A small alphabet, so that chains are often shared.
        std::vector<TokenId> tokens;
        const std::uint32_t blocks = 1 + random() % 4;
        for (std::uint32_t b = 0; b < blocks; ++b) {
          tokens.insert(tokens.end(), kBlock, static_cast<TokenId>(random() % 3));
        }
        PrefixRef found = index.find(tokens, blocks);
        const std::uint32_t need = blocks - found.num_blocks();
        if (need > pool.free()) {
          index.evict(need - pool.free());
        }
        auto own = pool.acquire(need);
        if (own) {
          BlockTable table(std::move(found), std::move(*own));
          ASSERT_EQ(table.num_blocks(), blocks);
          table.seal(index, kBlock, tokens, static_cast<std::uint32_t>(tokens.size()));
          running.push_back(std::move(table));
        }
      } else if (kind == 1) {
        index.evict(random() % 3);
      } else {
        std::swap(running[random() % running.size()], running.back());
        running.pop_back();
      }
      index.check_invariants();
      pool.check_invariants();
      ASSERT_EQ(pool.count(BlockUse::Cached), index.num_blocks()) << "seed " << seed;
    }
    running.clear();
    EXPECT_EQ(pool.count(BlockUse::InUse), 0U);
    EXPECT_EQ(index.num_evictable(), index.num_blocks());
  }
}

}  // namespace
}  // namespace baton::engine
