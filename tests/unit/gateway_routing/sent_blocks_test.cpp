#include "gateway/routing/sent_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/random.h"

namespace baton::gateway {
namespace {

using std::chrono::seconds;

constexpr PrefixMap::Slot kNode = 0;
constexpr PrefixMap::Slot kOther = 1;

using Hashes = std::vector<std::uint64_t>;

std::vector<SentBlocks::Part> part(PrefixMap::Slot slot, Hashes hashes) {
  return {{slot, std::make_shared<const Hashes>(std::move(hashes))}};
}

class SentBlocksTest : public ::testing::Test {
 protected:
  std::uint32_t expected(PrefixMap::Slot slot, const Hashes& chain) const {
    std::vector<std::uint32_t> matched;
    sent.match(chain, 70, matched);
    return matched.at(slot);
  }

  SentBlocks sent{1, seconds(2)};
  const TimePoint start{};
};

TEST_F(SentBlocksTest, AreExpectedUntilSomeTimeAfterTheyAreComputed) {
  const auto ticket = sent.sent(part(kNode, {1, 2, 3}));
  sent.expire(start + seconds(100));  // a long prompt is still computed
  EXPECT_EQ(expected(kNode, {1, 2, 3}), 3U);
  sent.settled(ticket, start + seconds(100), true);
  sent.settled(ticket, start + seconds(100), true);
  sent.expire(start + seconds(101));
  EXPECT_EQ(expected(kNode, {1, 2, 3}), 3U);
  sent.expire(start + seconds(102));
  EXPECT_EQ(expected(kNode, {1, 2, 3}), 0U);
  EXPECT_EQ(sent.size(), 0U);
}

TEST_F(SentBlocksTest, WhatItsNodeHasToldOfIsExpectedNoLonger) {
  const auto computed = sent.sent(part(kNode, {1, 2, 3}), part(kOther, {1, 2, 3}));
  sent.sent(part(kNode, {1, 7}));
  sent.settled(computed, start, true);
  sent.announced(kNode);
  EXPECT_EQ(expected(kNode, {1, 2, 3}), 1U);  // the other request is still computed
  EXPECT_EQ(expected(kOther, {1, 2, 3}), 3U);
  sent.announced(kOther);
  EXPECT_EQ(expected(kOther, {1, 2, 3}), 0U);
  sent.expire(start + seconds(2));
  EXPECT_EQ(sent.size(), 2U);
}

TEST_F(SentBlocksTest, OneRequestsEndLeavesWhatAnotherOneExpects) {
  const auto first = sent.sent(part(kNode, {1, 2}));
  const auto second = sent.sent(part(kNode, {1}));
  sent.settled(first, start, true);
  sent.expire(start + seconds(2));
  EXPECT_EQ(expected(kNode, {1, 2}), 1U);
  sent.settled(second, start, true);
  sent.expire(start + seconds(2));
  EXPECT_EQ(expected(kNode, {1, 2}), 0U);
}

TEST_F(SentBlocksTest, AreMovedOnlyOnceTheyAreComputed) {
  const auto good = sent.sent(part(kNode, {1, 2}), part(kOther, {1, 2}));
  const auto fails = sent.sent(part(kNode, {7}), part(kOther, {7}));
  EXPECT_EQ(expected(kNode, {1, 2}), 2U);
  EXPECT_EQ(expected(kOther, {1, 2}), 0U);
  sent.settled(good, start, true);
  sent.settled(fails, start, false);
  EXPECT_EQ(expected(kOther, {1, 2}), 2U);
  EXPECT_EQ(expected(kOther, {7}), 0U);
  sent.expire(start + seconds(2));
  EXPECT_EQ(expected(kNode, {7}), 0U);
  EXPECT_EQ(sent.size(), 0U);
}

TEST_F(SentBlocksTest, OutliveTheNodeTheyWereSentTo) {
  const auto ticket = sent.sent(part(kNode, {1, 2}));
  sent.retire(kNode);
  EXPECT_EQ(expected(kNode, {1, 2}), 0U);
  const auto mine = sent.sent(part(kNode, {1}));
  sent.settled(ticket, start, true);
  sent.expire(start + seconds(2));
  EXPECT_EQ(expected(kNode, {1, 2}), 1U);
  sent.settled(mine, start, true);
  sent.expire(start + seconds(2));
  EXPECT_EQ(sent.size(), 0U);
}

TEST_F(SentBlocksTest, TooManyAreNotExpected) {
  Hashes many(SentBlocks::kMaxBlocks);
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i] = i + 1;
  }
  EXPECT_EQ(sent.sent(part(kNode, {})), 0U);
  EXPECT_NE(sent.sent(part(kNode, std::move(many))), 0U);
  EXPECT_EQ(sent.sent(part(kNode, {7})), 0U);
}

// Names that stand for different beginnings are used by nobody who means well; they must do no
// harm.
TEST_F(SentBlocksTest, NamesThatCollideCostNoMoreThanWhatIsExpected) {
  const auto a = sent.sent(part(kNode, {1, 2, 3, 4}));
  const auto b = sent.sent(part(kNode, {2, 9}));     // 2 begins a stretch at another place
  const auto c = sent.sent(part(kNode, {1, 8, 2}));  // and here, once the first is split
  const auto d = sent.sent(part(kNode, {1, 2, 7, 4}));
  EXPECT_GE(expected(kNode, {1, 2, 3, 4}), 1U);
  for (const auto ticket : {a, b, c, d}) {
    sent.settled(ticket, start, true);
  }
  sent.expire(start + seconds(2));
  EXPECT_EQ(expected(kNode, {1, 2, 3, 4}), 0U);
  EXPECT_EQ(sent.size(), 0U);
}

// Many requests whose prompts share beginnings, against a plain list of them.
TEST_F(SentBlocksTest, AgreesWithAList) {
  auto random = seeded_random(5);
  struct Known {
    PrefixMap::Slot slot;
    Hashes hashes;
  };
  std::map<SentBlocks::Ticket, Known> open;
  // A path in a tree of 3 children a block; a name tells the whole way from the root.
  const auto make_chain = [&] {
    Hashes chain;
    std::uint64_t name = 1;
    for (std::uint64_t left = random() % 12; left > 0; --left) {
      name = name * 4 + 1 + random() % 3;
      chain.push_back(name);
    }
    return chain;
  };
  TimePoint now = start;
  for (int i = 0; i < 20'000; ++i) {
    if (open.size() < 40 && random() % 2 == 0) {
      const auto slot = static_cast<PrefixMap::Slot>(random() % 70);
      Hashes chain = make_chain();
      if (const auto ticket = sent.sent(part(slot, chain)); ticket != 0) {
        open[ticket] = {slot, std::move(chain)};
      }
    } else if (!open.empty()) {
      auto at = open.begin();
      std::advance(at, random() % open.size());
      sent.settled(at->first, now, random() % 2 == 0);
      open.erase(at);
      now += seconds(2);
      sent.expire(now);
    }
    if (i % 8 == 0) {
      const Hashes chain = make_chain();
      std::vector<std::uint32_t> matched;
      sent.match(chain, 70, matched);
      std::vector<std::uint32_t> wanted(70);
      for (const auto& [ticket, known] : open) {
        const auto same = std::ranges::mismatch(known.hashes, chain).in2 - chain.begin();
        wanted[known.slot] = std::max(wanted[known.slot], static_cast<std::uint32_t>(same));
      }
      ASSERT_EQ(matched, wanted) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace baton::gateway
