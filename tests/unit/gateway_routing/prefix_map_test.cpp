#include "gateway/routing/prefix_map.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/random.h"

namespace baton::gateway {
namespace {

using Chain = std::vector<std::uint64_t>;

std::vector<std::uint32_t> match(const PrefixMap& map, const Chain& chain) {
  std::vector<std::uint32_t> matched;
  map.match(chain, {}, matched);
  return matched;
}

TEST(PrefixMap, CountsLeadingBlocksOfEachNode) {
  PrefixMap map(1);
  const auto a = map.add();
  const auto b = map.add();
  const auto c = map.add();
  map.store(a, Chain{1, 2, 3});
  map.store(b, Chain{1, 2, 3, 4});
  map.store(c, Chain{2, 3});  // without the first block the rest is of no use
  const auto matched = match(map, {1, 2, 3, 4, 5});
  EXPECT_EQ(matched[a], 3U);
  EXPECT_EQ(matched[b], 4U);
  EXPECT_EQ(matched[c], 0U);
  map.remove(b, Chain{3, 4, 99});
  EXPECT_EQ(match(map, {1, 2, 3, 4})[b], 2U);
  EXPECT_EQ(map.announced(b), 2U);
  EXPECT_EQ(match(map, {})[a], 0U);
}

TEST(PrefixMap, HoldsAsManyNodesAsThereAre) {
  PrefixMap map(1);
  std::vector<PrefixMap::Slot> slots;
  for (std::uint64_t i = 0; i < 200; ++i) {
    slots.push_back(map.add());
    map.store(slots.back(), Chain{7, 1000 + i});
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto matched = match(map, {7, 1000 + i});
    for (std::uint64_t other = 0; other < 200; ++other) {
      ASSERT_EQ(matched[slots[other]], other == i ? 2U : 1U);
    }
  }
}

TEST(PrefixMap, ARetiredSlotCountsNoMoreAndLeavesNothing) {
  PrefixMap map(1);
  const auto stays = map.add();
  const auto goes = map.add();
  Chain chain;
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    chain.push_back(i * 77);
  }
  map.store(goes, chain);
  map.store(stays, Chain{chain[0]});
  map.retire(goes);
  EXPECT_EQ(match(map, chain)[goes], 0U);
  EXPECT_EQ(match(map, chain)[stays], 1U);
  const auto next = map.add();
  EXPECT_NE(next, goes) << "its blocks are still there";
  std::size_t pieces = 0;
  while (map.sweep()) {
    ++pieces;
  }
  EXPECT_EQ(pieces, BlockTable::kSegments);
  EXPECT_EQ(map.size(), 1U);
  EXPECT_EQ(map.add(), goes);
  EXPECT_EQ(match(map, chain)[goes], 0U);
}

TEST(PrefixMap, ResetsWithoutEndNeedNoMemory) {
  PrefixMap map(1);
  auto slot = map.add();
  for (std::uint64_t round = 0; round < 1000; ++round) {
    map.store(slot, Chain{round, round + 1, round + 2});
    map.retire(slot);
    slot = map.add();
  }
  EXPECT_LT(slot, 64U);
  EXPECT_LE(map.size(), 64U * 3);
}

// Changes of many nodes, with restarts in between, against plain sets.
TEST(PrefixMap, AgreesWithSets) {
  auto random = seeded_random(11);
  PrefixMap map(random());
  constexpr std::size_t kNodes = 70;
  std::vector<PrefixMap::Slot> slots(kNodes);
  std::vector<std::set<std::uint64_t>> oracle(kNodes);
  for (auto& slot : slots) {
    slot = map.add();
  }
  for (int i = 0; i < 40'000; ++i) {
    const std::size_t node = random() % kNodes;
    const std::uint64_t hash = 1 + random() % 40;
    switch (random() % 16) {
      case 0:
        if (random() % 8 == 0) {
          map.retire(slots[node]);
          slots[node] = map.add();
          oracle[node].clear();
        }
        break;
      case 1:
      case 2:
      case 3:
        map.remove(slots[node], Chain{hash});
        oracle[node].erase(hash);
        break;
      case 4:
        map.sweep();
        break;
      default:
        map.store(slots[node], Chain{hash});
        oracle[node].insert(hash);
    }
    if (i % 16 == 0) {
      Chain chain;
      for (std::uint64_t first = 1 + random() % 40; first <= 40; ++first) {
        chain.push_back(first);
      }
      const auto matched = match(map, chain);
      for (std::size_t n = 0; n < kNodes; ++n) {
        std::uint32_t expected = 0;
        while (expected < chain.size() && oracle[n].contains(chain[expected])) {
          ++expected;
        }
        ASSERT_EQ(matched[slots[n]], expected) << "step " << i << ", node " << n;
      }
    }
  }
}

TEST(PrefixMap, WhatIsExpectedSoonCountsAsHeld) {
  PrefixMap map(1);
  const auto a = map.add();
  const auto b = map.add();
  const auto c = map.add();
  map.store(a, Chain{1, 2, 5});
  map.store(b, Chain{3, 4});
  std::vector<std::uint32_t> matched;
  map.match(Chain{1, 2, 3, 4, 5}, std::vector<std::uint32_t>{0, 2}, matched);
  EXPECT_EQ(matched[a], 2U);
  EXPECT_EQ(matched[b], 4U) << "two to come, two that are there";
  EXPECT_EQ(matched[c], 0U);
  map.match(Chain{1, 2, 3, 4, 5}, std::vector<std::uint32_t>{4, 2, 5}, matched);
  EXPECT_EQ(matched[a], 5U);
  EXPECT_EQ(matched[b], 4U);
  EXPECT_EQ(matched[c], 5U);
}

}  // namespace
}  // namespace baton::gateway
