// The comparison of pool policies: what must hold holds on every load, and the simulated cluster
// loses nothing. Times are virtual, one seed gives one result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/pools/pools_bench.h"

namespace baton::bench {
namespace {

using gateway::PoolSize;
using ::testing::IsEmpty;

PoolLoadShape load_named(const std::string& name) {
  for (const PoolLoadShape& load : pool_loads(4 * 3600, 1)) {
    if (load.name == name) {
      return load;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(PoolLoads, ArrivalsFollowTheShape) {
  const PoolLoadShape step = load_named("step");
  const PoolTrace trace = draw(step, 3);
  double early = 0;
  double input = 0;
  for (const PoolRequest& request : trace) {
    if (request.at_s < 3600) {
      ++early;
      input += request.input;
    }
  }
  const LoadPoint chat = step.at(0);
  EXPECT_NEAR(early / 3600, chat.rate, 0.2);
  EXPECT_NEAR(input / early, chat.input, 0.03 * chat.input);
}

TEST(SimPools, EveryRequestEndsWhateverChanges) {
  const PoolLoadShape load = load_named("ramp");
  const PoolTrace trace = draw(load, 1);
  SimPools pools({}, {6, 6});
  std::uint64_t turn = 0;
  while (pools.now() < load.seconds) {
    pools.run(trace, pools.now() + 60);
    const gateway::PoolObservation seen = pools.observe();
    const gateway::PoolNode& node = seen.nodes[++turn % seen.nodes.size()];
    const PoolSize there = pools.usable();
    if (node.is_usable && there.of(node.role) > 2) {
      pools.change({&node.handle, 1});
    }
  }
  pools.finish(trace);
  EXPECT_EQ(pools.ended(), trace.size());
  EXPECT_NEAR(pools.node_seconds(), 12 * pools.now(), 1);
}

TEST(SimPools, ABranchDoesNotDisturbItsTrunk) {
  const PoolLoadShape load = load_named("step");
  const PoolTrace trace = draw(load, 2);
  SimPools alone({}, {5, 7});
  alone.run(trace, 4'000);
  SimPools trunk({}, {5, 7});
  trunk.run(trace, 2'000);
  SimPools branch = trunk;
  branch.change_at_once({8, 4});
  branch.run(trace, 3'000);
  trunk.run(trace, 4'000);
  EXPECT_EQ(trunk.good(), alone.good());
  EXPECT_EQ(trunk.ended(), alone.ended());
}

TEST(PoolsBench, WhatMustHoldHolds) {
  PoolsBenchOptions options;
  options.day_s = 6 * 3600;
  const PoolsReport report = run_pools_bench(options, [](std::string_view) {});
  EXPECT_THAT(report.broken, IsEmpty()) << to_table(report);
  for (const PoolsScenario& scenario : report.scenarios) {
    const PoolsResult& oracle = scenario.of("oracle");
    for (const PoolsResult& result : scenario.results) {
      // Replicas may have more nodes than the oracle has.
      EXPECT_TRUE(result.policy == "replicas" || result.attainment <= oracle.attainment + 0.01)
          << scenario.load << ": " << result.policy;
    }
    if (!scenario.is_steady) {
      EXPECT_GT(scenario.of("controller").flips, 0U) << scenario.load;
    }
  }
}

}  // namespace
}  // namespace baton::bench
