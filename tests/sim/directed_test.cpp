// Scenarios of the simulation that a test steers itself.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/sim/simulation.h"

namespace baton::sim {
namespace {

using gateway::BreakerState;

// The gateway hears both nodes all the time; only they do not hear each other.
TEST(Breakers, APartitionPutsOnlyItsPairOutUntilOneRequestGetsThrough) {
  Plan plan = quiet_plan(7, 2, 2);
  plan.tracker.routing.policy = gateway::RoutePolicy::Random;
  Simulation simulation(plan, false);
  ASSERT_TRUE(simulation.start()) << simulation.failure();
  Cluster& cluster = simulation.cluster();
  const gateway::RouteHealth& health = cluster.gateway(0)->health();
  std::uint64_t next = 1;
  // Requests one after another until the breakers are as wanted.
  const auto ask_until = [&](const auto& is_wanted) {
    for (int i = 0; i < 400 && !is_wanted(); ++i) {
      ClientPlan client;
      client.request = plan_request(next, 12, 4, next);
      ++next;
      const auto asked = cluster.submit(client);
      EXPECT_TRUE(simulation.world().run_until([&] { return asked->is_over(); }, seconds(60)));
      EXPECT_EQ(asked->end(), ClientEnd::Whole);
      simulation.world().run_for(milliseconds(200));
    }
    return is_wanted();
  };
  const auto breakers = [&] { return health.breakers(simulation.world().now()); };

  cluster.part("p0", "d0", seconds(20));
  ASSERT_TRUE(ask_until([&] {
    const auto all = breakers();
    return !all.empty() && all.front().state == BreakerState::Open;
  }));
  ASSERT_EQ(breakers().size(), 1U);
  EXPECT_EQ(breakers().front().part.node.name, "p0");
  EXPECT_EQ(breakers().front().part.peer.name, "d0");

  // One try after the other fails until the way is mended.
  EXPECT_TRUE(ask_until([&] {
    const auto all = breakers();
    return all.empty() || all.front().state == BreakerState::Closed;
  }));
  EXPECT_TRUE(simulation.finish()) << simulation.failure();
}

}  // namespace
}  // namespace baton::sim
