// What a gateway makes of a node's events is what the node's prefix index holds.
#include "node/kv_events.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/rpc/frame_codec.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/block_table.h"

namespace baton::node {
namespace {

constexpr std::uint32_t kBlock = 4;

KvArenaView shape(std::uint32_t num_blocks) {
  return {.base = nullptr,
          .layout = {.layers = 1, .kv_heads = 1, .head_dim = 16, .block_tokens = kBlock},
          .num_blocks = num_blocks};
}

// The other end of a connection.
struct Reader {
  std::set<std::uint64_t> known;
  std::uint64_t sequence = 0;
  int resets = 0;

  // True: there was a message.
  bool read(KvEventFeed& feed) {
    const auto events = feed.next();
    if (!events) {
      return false;
    }
    EXPECT_EQ(events->sequence(), ++sequence);
    EXPECT_LT(events->ByteSizeLong(), kMaxFrameBytes / 2);
    if (events->reset()) {
      ++resets;
      known.clear();
    }
    for (const std::uint64_t name : events->removed()) {
      known.erase(name);
    }
    for (const std::uint64_t name : events->stored()) {
      EXPECT_TRUE(known.insert(name).second || !events->reset());
    }
    return true;
  }
  void read_all(KvEventFeed& feed) {
    while (read(feed)) {
    }
  }
};

std::set<std::uint64_t> names_of(const engine::PrefixIndex& index) {
  const auto names = index.names();
  return {names.begin(), names.end()};
}

class KvEventsTest : public ::testing::Test {
 protected:
  // `blocks` blocks of a prompt that depends on `first` have been computed.
  void remember(TokenId first, std::uint32_t blocks) {
    if (pool_.free() < blocks) {
      index_.evict(blocks - pool_.free());
    }
    std::vector<TokenId> tokens(std::size_t{blocks} * kBlock);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = first + static_cast<TokenId>(i);
    }
    engine::BlockTable table({}, *pool_.acquire(blocks));
    table.seal(index_, kBlock, tokens, blocks * kBlock);
  }

  engine::BlockPool pool_{shape(40'000)};
  engine::PrefixIndex index_{kBlock, true};
  KvEventFeed feed_{index_};
  Reader reader_;
};

TEST_F(KvEventsTest, FirstMessageIsAResetEvenOfAnEmptyIndex) {
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_EQ(reader_.resets, 1);
  EXPECT_FALSE(reader_.read(feed_));
  remember(7, 3);
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_EQ(reader_.resets, 1);
  EXPECT_EQ(reader_.known, names_of(index_));
  EXPECT_FALSE(reader_.read(feed_));
}

TEST_F(KvEventsTest, LeafThatIsEvictedLeavesTheRestOfItsChain) {
  remember(7, 3);
  reader_.read_all(feed_);
  index_.evict(1);
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_EQ(reader_.known.size(), 2U);
  EXPECT_EQ(reader_.known, names_of(index_));
}

TEST_F(KvEventsTest, BlockThatWentAndCameBackIsStored) {
  remember(7, 3);
  reader_.read_all(feed_);
  index_.evict(3);
  remember(7, 3);
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_EQ(reader_.known, names_of(index_));
  remember(99, 2);
  index_.evict(5);
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_TRUE(reader_.known.empty());
}

TEST_F(KvEventsTest, LargeListComesInPiecesWhileTheIndexChanges) {
  remember(1, 30'000);
  EXPECT_TRUE(reader_.read(feed_));
  EXPECT_EQ(reader_.known.size(), KvEventFeed::kMaxNames);
  remember(500'000, 8'000);
  index_.evict(12'000);
  reader_.read_all(feed_);
  EXPECT_EQ(reader_.resets, 1);
  EXPECT_EQ(reader_.known, names_of(index_));
}

TEST_F(KvEventsTest, ConnectionThatLagsTooFarGetsANewList) {
  reader_.read_all(feed_);
  for (TokenId round = 0; round < 30; ++round) {
    remember(1'000 * round, 200);
    index_.evict(200);
  }
  remember(7, 3);
  reader_.read_all(feed_);
  EXPECT_EQ(reader_.resets, 2);
  EXPECT_EQ(reader_.known, names_of(index_));
}

TEST_F(KvEventsTest, RandomChangesAndReadsEndInTheSameSet) {
  std::mt19937 random(3);
  for (int step = 0; step < 2'000; ++step) {
    switch (random() % 3) {
      case 0:
        remember(static_cast<TokenId>(random() % 50) * 1'000, 1 + random() % 40);
        break;
      case 1:
        index_.evict(random() % 60);
        break;
      default:
        reader_.read(feed_);
    }
  }
  reader_.read_all(feed_);
  EXPECT_EQ(reader_.known, names_of(index_));
}

TEST(KvEvents, NodeWithoutAPrefixCacheTellsNothing) {
  const engine::PrefixIndex off(kBlock, false);
  KvEventFeed feed(off);
  EXPECT_FALSE(feed.next());
}

}  // namespace
}  // namespace baton::node
