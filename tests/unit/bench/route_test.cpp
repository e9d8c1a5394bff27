// The replay of traces: reading, the nodes' caches, and that policies stand in the order they
// should. Times are virtual, one seed gives one result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/route/block_cache.h"
#include "bench/route/route_bench.h"

namespace baton::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Chain = std::vector<std::uint64_t>;

TEST(RouteTrace, ReadsWhatItWrites) {
  const Trace made = make_trace({.requests = 50, .groups = 5});
  const auto read = parse_trace(to_jsonl(made));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_NEAR((*read)[i].at_s, made[i].at_s, 1e-3);
    EXPECT_EQ((*read)[i].blocks, made[i].blocks);
    EXPECT_EQ((*read)[i].input_length, made[i].input_length);
  }
}

TEST(RouteTrace, OnlyFullBlocksCountAndOrderIsTime) {
  const auto trace = parse_trace(
      R"({"timestamp": 2000, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 3]})"
      "\n\n"
      R"({"timestamp": 1000, "input_length": 512, "output_length": 0, "hash_ids": [1]})");
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_EQ((*trace)[0].at_s, 1);
  EXPECT_EQ((*trace)[0].output_length, 1U);
  EXPECT_THAT((*trace)[1].blocks, ElementsAre(1, 2));
  EXPECT_EQ(shared_blocks(*trace), 1U);
  // The second finds its first block.
  EXPECT_DOUBLE_EQ(unlimited_hit_rate(*trace), 512.0 / 1612);
}

TEST(RouteTrace, BadLinesAreNamed) {
  const char* const good =
      R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": []})";
  for (const char* bad :
       {"{",
        "[]",
        R"({"timestamp": 1})",
        R"({"timestamp": -1, "input_length": 5, "output_length": 1, "hash_ids": []})",
        R"({"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []})",
        R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": ["a"]})"}) {
    const auto trace = parse_trace(std::string(good) + "\n" + bad);
    ASSERT_FALSE(trace) << bad;
    EXPECT_THAT(trace.error().message, HasSubstr("line 2")) << bad;
  }
  EXPECT_FALSE(parse_trace("\n"));
  EXPECT_FALSE(read_trace("/no/such/file"));
}

TEST(BlockCache, ThrowsOutTheEndOfTheOldestChain) {
  BlockCache cache(4);
  cache.use(Chain{1, 2, 3});
  EXPECT_THAT(cache.take_changes().stored, UnorderedElementsAre(1, 2, 3));
  cache.use(Chain{1, 9});
  EXPECT_EQ(cache.held(Chain{1, 2, 3}), 3U);
  cache.use(Chain{7});
  EXPECT_EQ(cache.held(Chain{1, 2, 3}), 2U);
  auto changes = cache.take_changes();
  EXPECT_THAT(changes.stored, UnorderedElementsAre(7, 9));
  EXPECT_THAT(changes.removed, ElementsAre(3));
  cache.resize(1);
  cache.use(Chain{8});
  cache.resize(4);
  changes = cache.take_changes();
  EXPECT_THAT(changes.stored, ElementsAre(8));
  EXPECT_THAT(changes.removed, UnorderedElementsAre(1, 2, 7, 9));
  EXPECT_THAT(cache.take_changes().stored, IsEmpty());
}

class ReplayTest : public ::testing::Test {
 protected:
  // Of a size that a test has time for; loaded so that routing matters.
  Trace trace(std::uint64_t seed) const {
    return make_trace({.requests = 3'000, .rate = 6, .groups = 120, .seed = seed});
  }
  ReplayOptions options(std::uint64_t seed) const {
    return {.prefill_nodes = 4, .decode_nodes = 4, .cache_blocks = 0, .seed = seed};
  }
};

TEST_F(ReplayTest, OneSeedGivesOneResult) {
  const Trace made = trace(1);
  ReplayOptions same = options(1);
  same.cache_blocks = 120;
  for (const ReplayPolicy policy : kReplayPolicies) {
    const ReplayResult once = replay(made, same, policy);
    const ReplayResult again = replay(made, same, policy);
    EXPECT_EQ(once.finished, made.size());
    EXPECT_EQ(once.computed_tokens, again.computed_tokens);
    EXPECT_EQ(once.ttft_s.p90, again.ttft_s.p90);
    EXPECT_EQ(once.itl_s.p99, again.itl_s.p99);
  }
}

TEST_F(ReplayTest, PoliciesStandInOrder) {
  // The benchmark's own cluster and load: on a smaller one noise is as large as what lies between
  // two.
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Trace made = make_trace({.requests = 4'000, .rate = 12, .groups = 400, .seed = seed});
    const RouteReport report =
        run_route_bench(made, {.cache_blocks = 0, .seed = seed}, [](std::string_view) {});
    EXPECT_THAT(report.broken, IsEmpty()) << to_table(report);
    const RouteScenario& scarce = report.scenarios[0];
    EXPECT_NEAR(scarce.working_set, 3, 0.1);
    // Random computes far more than ours.
    EXPECT_GT(scarce.results[0].computed_tokens, scarce.results[4].computed_tokens * 5 / 4);
  }
}

}  // namespace
}  // namespace baton::bench
