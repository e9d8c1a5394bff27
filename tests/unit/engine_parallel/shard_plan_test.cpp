#include "engine/parallel/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::engine {
namespace {

using ::testing::ElementsAre;

TEST(ShardPlan, CutsEvenlyInWholeUnits) {
  EXPECT_THAT(cut_shards(8, 1), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(cut_shards(3, 1), ElementsAre(0, 0, 1, 2, 3));
  EXPECT_THAT(cut_shards(1, 1), ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(cut_shards(1536, 256), ElementsAre(0, 256, 768, 1024, 1536));
  EXPECT_THAT(cut_shards(1000, 256), ElementsAre(0, 256, 512, 768, 1000));
  EXPECT_THAT(cut_shards(100, 256), ElementsAre(0, 0, 0, 0, 100));
}

TEST(ShardPlan, RanksHaveWholeShards) {
  EXPECT_EQ(shards_of(0, 1).end, 4U);
  EXPECT_EQ(shards_of(1, 2).first, 2U);
  EXPECT_EQ(shards_of(1, 2).end, 4U);
  EXPECT_EQ(shards_of(3, 4).first, 3U);
  EXPECT_DEATH(shards_of(0, 3), "ranks");
  EXPECT_DEATH(shards_of(2, 2), "ranks");
}

TEST(ShardPlan, EmptyShardsEndNoChain) {
  EXPECT_THAT(chain_ends({0, 0, 1, 2, 3}, 192), ElementsAre(192, 384, 576));
  EXPECT_THAT(chain_ends({0, 256, 768, 1024, 1536}, 1), ElementsAre(256, 768, 1024, 1536));
}

}  // namespace
}  // namespace baton::engine
