#include "gateway/routing/block_table.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "common/base/random.h"

namespace baton::gateway {
namespace {

TEST(BlockTable, AgreesWithAMapOverRandomChanges) {
  auto random = seeded_random(7);
  BlockTable table(random());
  std::unordered_map<std::uint64_t, std::uint64_t> oracle;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t hash = random() % 20'000;  // neighbours, not spread
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const std::uint64_t value = 1 + random() % 255;
        table.set(hash, value);
        oracle[hash] = value;
        break;
      }
      case 4:
      case 5:
        table.set(hash, 0);
        oracle.erase(hash);
        break;
      default: {
        const auto found = oracle.find(hash);
        ASSERT_EQ(table.find(hash), found == oracle.end() ? 0 : found->second) << i;
      }
    }
    if (i % 50'000 == 49'999) {
      const std::uint64_t mask = random() % 256;
      for (std::size_t segment = 0; segment < BlockTable::kSegments; ++segment) {
        table.keep(segment, mask);
      }
      for (auto& [key, value] : oracle) {
        value &= mask;
      }
      std::erase_if(oracle, [](const auto& entry) { return entry.second == 0; });
    }
    ASSERT_EQ(table.size(), oracle.size()) << i;
  }
}

TEST(BlockTable, GivesMemoryBack) {
  BlockTable table(3);
  const std::size_t empty = table.bytes();
  for (std::uint64_t hash = 1; hash <= 100'000; ++hash) {
    table.set(hash, 2);
  }
  EXPECT_LT(table.bytes(), empty + 100'000 * 64);
  for (std::size_t segment = 0; segment < BlockTable::kSegments; ++segment) {
    table.keep(segment, 1);
  }
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.bytes(), empty);
}

TEST(BlockTable, UpdatePutsChangesAndRemoves) {
  BlockTable table(5);
  const auto up = [](std::uint64_t value) { return value + 1; };
  const auto down = [](std::uint64_t value) { return value - 1; };
  for (int round = 1; round <= 2; ++round) {
    for (std::uint64_t hash = 0; hash < 3000; ++hash) {
      EXPECT_EQ(table.update(hash, up), static_cast<std::uint64_t>(round));
    }
  }
  EXPECT_EQ(table.size(), 3000U);
  EXPECT_EQ(table.update(7, down), 1U);
  EXPECT_EQ(table.find(7), 1U);
  EXPECT_EQ(table.update(7, down), 0U);
  EXPECT_EQ(table.find(7), 0U);
  EXPECT_EQ(table.size(), 2999U);
  EXPECT_EQ(table.update(9000, [](std::uint64_t) { return std::uint64_t{0}; }), 0U);
  EXPECT_EQ(table.size(), 2999U);
  EXPECT_EQ(table.find(8), 2U);
}

}  // namespace
}  // namespace baton::gateway
