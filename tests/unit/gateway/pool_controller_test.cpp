// The pool controller against scripted nodes: whom it asks to change, what it exports, and that it
// waits for those who come back.
#include "gateway/pools/pool_controller.h"

#include <gmock/gmock.h>

#include <sstream>

#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class PoolControllerTest : public TrackerTest {
 protected:
  void control(PoolsSection pools) {
    pools.interval = milliseconds(500);
    pools.cooldown = milliseconds(2'000);
    controller = std::make_unique<PoolController>(
        executor,
        *membership,
        told,
        metrics,
        PoolControllerOptions{.pools = std::move(pools), .ttft_s = 1, .itl_s = 0.1},
        [this](const std::string& model) { return tracker->waiting(model); });
    controller->start();
  }
  void TearDown() override {
    controller.reset();
    TrackerTest::TearDown();
  }
  // Two of each role, which want to be one and three.
  void start_pools(const std::string& change_roles, bool may_change = true) {
    start();
    NodeScript script;
    script.may_change_role = may_change;
    for (const char* name : {"d0", "d1", "p0", "p1"}) {
      nodes.push_back(&add(name, script));
    }
    PoolsSection pools;
    pools.change_roles = change_roles;
    pools.ratio = "1:3";
    control(pools);
  }
  // One decode node of three, and enough time to have been seen.
  void start_three() {
    start();
    NodeScript script;
    script.may_change_role = true;
    nodes = {&add("d0", script), &add("p0", script), &add("p1", script)};
    PoolsSection pools;
    pools.change_roles = "on";
    control(pools);
    pass(3'000);
    EXPECT_EQ(drains(), 0U);
  }
  // One of the two prefill nodes is to become one.
  void expect_a_decode_node() {
    pass(2'000);
    EXPECT_EQ(nodes[1]->counts().drains + nodes[2]->counts().drains, 1U);
    EXPECT_EQ(asked(1) + asked(2), "decode");
    EXPECT_THAT(controller->to_json(), HasSubstr(R"("decode":{"nodes":0,"wanted":1)"));
    EXPECT_THAT(said.str(), HasSubstr("2 prefill and 0 decode nodes, floor wants 1 and 1"));
  }
  std::string asked(std::size_t node) const { return nodes[node]->counts().then_role; }
  std::uint32_t drains() const {
    std::uint32_t all = 0;
    for (const ScriptedNode* node : nodes) {
      all += node->counts().drains;
    }
    return all;
  }

  std::ostringstream said;
  const Logger told = Logger::create({}, &said).value();
  std::unique_ptr<PoolController> controller;
  std::vector<ScriptedNode*> nodes;
};

TEST_F(PoolControllerTest, GivesOneNodeTheRoleThatLacksNodes) {
  start_pools("on");
  pass(1'000);
  EXPECT_EQ(drains(), 1U);
  EXPECT_EQ(asked(2), "decode");
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("changing":1)"));
  // It is on its way: nobody else is asked however long that takes.
  pass(10'000);
  EXPECT_EQ(drains(), 1U);
  // Back under its old name, with the other role.
  nodes[2]->kill();
  pass(100);
  ScriptedNodeOptions options;
  options.name = "p0";
  options.role = "decode";
  options.gateway = kAddress;
  options.token = "secret";
  NodeScript script;
  script.may_change_role = true;
  ScriptedNode& back = cluster->add(options, script);
  nodes[2] = &back;
  pass(3'000);
  EXPECT_TRUE(back.is_up());
  EXPECT_EQ(drains(), 0U);
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("changing":0)"));
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("prefill":{"nodes":1,"wanted":1)"));
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("decode":{"nodes":3,"wanted":3)"));
  EXPECT_THAT(metrics.to_text(), HasSubstr(R"(baton_pool_nodes{role="decode"} 3)"));
  EXPECT_THAT(metrics.to_text(), HasSubstr(R"(baton_pool_role_changes_total{role="decode"} 1)"));
}

TEST_F(PoolControllerTest, OneThatDoesNotComeBackIsNotWaitedForForEver) {
  start_pools("on");
  pass(1'000);
  nodes[2]->kill();
  executor.advance(seconds(60));
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("changing":1)"));
  executor.advance(seconds(300));
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("changing":0)"));
}

TEST_F(PoolControllerTest, DryRunAsksNobody) {
  start_pools("dry_run");
  pass(10'000);
  EXPECT_EQ(drains(), 0U);
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("prefill":{"nodes":2,"wanted":1)"));
  EXPECT_THAT(metrics.to_text(), HasSubstr(R"(baton_pool_desired_replicas{role="prefill"})"));
}

TEST_F(PoolControllerTest, NodesOfOneRoleAreLeftAlone) {
  start_pools("on", false);
  pass(10'000);
  EXPECT_EQ(drains(), 0U);
}

// Three of four requests come through other gateways.
TEST_F(PoolControllerTest, RequestsOfOtherGatewaysCount) {
  start();
  NodeScript script;
  script.others_take = 3;
  add("d0", script);
  add("p0", script);
  control({});
  for (std::uint64_t id = 1; id <= 40; ++id) {
    submit(id, 2);
    pass(100);
  }
  pass(1'000);
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("share":0.25)"));
}

TEST_F(PoolControllerTest, TheLastNodeOfARoleStays) {
  start();
  NodeScript script;
  script.may_change_role = true;
  nodes = {&add("d0", script), &add("p0", script)};
  PoolsSection pools;
  pools.change_roles = "on";
  pools.ratio = "1:9";
  control(pools);
  pass(20'000);
  EXPECT_EQ(drains(), 0U);
}

TEST_F(PoolControllerTest, ARoleThatWasKilledGetsANodeWithoutLoad) {
  start_three();
  nodes[0]->kill();
  expect_a_decode_node();
}

TEST_F(PoolControllerTest, SaysNothingBeforeItHasLooked) {
  start();
  add("d0");
  add("p0");
  control({});
  controller->on_request("scripted", 10);
  EXPECT_EQ(controller->to_json(), "[]");
  pass(500);
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("prefill":{"nodes":1,"wanted":1)"));
  // Those that came since.
  add("p1");
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("prefill":{"nodes":2,"wanted":2)"));
}

TEST_F(PoolControllerTest, NoFiguresBeforeAnyLoadWasSeen) {
  start_pools("dry_run");
  pass(1'000);
  EXPECT_THAT(said.str(),
              HasSubstr("pools of 'scripted': 2 prefill and 2 decode nodes, ratio wants 1 "
                        "and 3; node 'p0' would become a decode node"));
  EXPECT_THAT(controller->to_json(), HasSubstr(R"("room":null)"));
}

}  // namespace
}  // namespace baton::gateway
