#include "gateway/routing/route_cost.h"

#include <gtest/gtest.h>

#include <map>

#include "gateway/routing/link_speeds.h"
#include "gateway/routing/predicted_work.h"

namespace baton::gateway {
namespace {

NodeView node(std::uint64_t handle, NodeRole role) {
  NodeView view;
  view.handle = NodeHandle{handle};
  view.role = role;
  view.name_hash = handle * 0x9e3779b97f4a7c15ULL;
  view.layout = KvLayout{.layers = 4, .kv_heads = 2, .head_dim = 64};
  view.credits_left = 4;
  view.max_batch = 16;
  view.blocks_free = 1000;
  view.blocks_total = 1000;
  return view;
}
// Handles: decode nodes 1 and 2, prefill nodes 3 and 4; 1000 tokens a second.
std::vector<NodeView> four() {
  std::vector<NodeView> nodes{node(1, NodeRole::Decode),
                              node(2, NodeRole::Decode),
                              node(3, NodeRole::Prefill),
                              node(4, NodeRole::Prefill)};
  nodes[2].prefill_tokens_per_s = nodes[3].prefill_tokens_per_s = 1000;
  return nodes;
}
RouteNeed need(std::uint32_t prompt) {
  return RouteNeed{.prompt_tokens = prompt, .context_tokens = prompt, .total_tokens = prompt + 100};
}

TEST(RouteCost, AWarmCacheIsWorthAQueueUpToWhatItSaves) {
  std::vector<NodeView> nodes = four();
  const std::vector<std::uint32_t> held{0, 0, 3200, 0};
  RouteNeed wanted = need(4000);
  wanted.held_tokens = held;
  nodes[2].queued_tokens = 3000;
  auto route = choose_route(nodes, wanted);
  EXPECT_EQ(route->prefill, NodeHandle{3});
  EXPECT_EQ(route->held_tokens, 3200U);
  nodes[2].queued_tokens = 5500;  // half the nodes are busy: what is saved counts 1.4 times
  route = choose_route(nodes, wanted);
  EXPECT_EQ(route->prefill, NodeHandle{4});
  EXPECT_EQ(route->held_tokens, 0U);
}

// One request at a time tells a node's step, not what a larger batch costs; and nothing of nodes
// that got none.
TEST(RouteCost, RequestsSpreadOverDecodeNodesThatSawOnlySingleOnes) {
  std::vector<NodeView> nodes = four();
  nodes[0].step_base_s = 0.004;
  std::map<std::uint64_t, int> taken;
  for (int i = 0; i < 6; ++i) {
    const auto route = choose_route(nodes, need(100));
    ASSERT_TRUE(route);
    ++taken[route->decode.value];
    ++nodes[route->decode.value - 1].running;
  }
  EXPECT_EQ(taken[1], 3);
  EXPECT_EQ(taken[2], 3);
}

TEST(RouteCost, DecodeThatHoldsThePrefixNeedsOnlyTheRest) {
  const std::vector<NodeView> nodes = four();
  const std::vector<std::uint32_t> held{0, 3200, 0, 0};
  LinkSpeeds links;
  RouteNeed wanted = need(4000);
  wanted.held_tokens = held;
  wanted.links = &links;
  wanted.pulls = false;
  EXPECT_EQ(choose_route(nodes, wanted)->decode, NodeHandle{2});
  const RouteCost cost(nodes, wanted);
  const double bytes = 3200.0 / 32 * static_cast<double>(nodes[1].layout.block_bytes_all_layers());
  EXPECT_NEAR(cost.remote(2, 0) - cost.remote(2, 1), bytes * LinkSpeeds::kUnmeasured / 10, 1e-9);
}

TEST(RouteCost, BlocksAreTakenFromDecodeWhenThatIsCheaper) {
  const std::vector<NodeView> nodes = four();
  const std::vector<std::uint32_t> held{0, 3200, 0, 0};
  RouteNeed wanted = need(4000);
  wanted.held_tokens = held;
  wanted.pulls = false;
  const double computes = RouteCost(nodes, wanted).remote(2, 1);
  wanted.pulls = true;
  const double pulls = RouteCost(nodes, wanted).remote(2, 1);
  EXPECT_NEAR(computes - pulls, 3.2, 0.1);
  LinkSpeeds slow;
  slow.observe({NodeHandle{3}, NodeHandle{2}}, 1U << 20U, 1, 0);
  wanted.links = &slow;
  RouteNeed never = wanted;
  never.pulls = false;
  EXPECT_DOUBLE_EQ(RouteCost(nodes, wanted).remote(2, 1), RouteCost(nodes, never).remote(2, 1));
}

TEST(RouteCost, ASlowLinkIsAvoided) {
  const std::vector<NodeView> nodes = four();
  LinkSpeeds links;
  links.observe({NodeHandle{3}, NodeHandle{1}}, 1U << 20U, 0.1, 0);
  RouteNeed wanted = need(4000);
  wanted.links = &links;
  const auto route = choose_route(nodes, wanted);
  EXPECT_FALSE(route->prefill == NodeHandle{3} && route->decode == NodeHandle{1});
}

TEST(RouteCost, LongContextsCostMoreThanTheirTokens) {
  std::vector<NodeView> nodes = four();
  nodes[2].prefill_s_per_token = nodes[3].prefill_s_per_token = 1e-3;
  nodes[2].prefill_s_per_meeting = 1e-6;  // slower where contexts are long
  nodes[3].queued_tokens = 1000;
  EXPECT_EQ(choose_route(nodes, need(1000))->prefill, NodeHandle{3});
  EXPECT_EQ(choose_route(nodes, need(4000))->prefill, NodeHandle{4});
}

TEST(RouteCost, WorkThatIsNearlyDoneIsAShortQueue) {
  std::vector<NodeView> nodes = four();
  PredictedWork begun;
  begun.begin(2, TimePoint{});
  nodes[2].work_s = begun.left(TimePoint{} + std::chrono::milliseconds(1500));
  nodes[3].work_s = 0.7;
  EXPECT_EQ(choose_route(nodes, need(100))->prefill, NodeHandle{3});
  nodes[2].foreign_tokens = 1000;  // of another gateway
  EXPECT_EQ(choose_route(nodes, need(100))->prefill, NodeHandle{4});
}

TEST(PredictedWork, TakesOffWhatANodeHasBeenAt) {
  const auto at = [](int ms) { return TimePoint{} + std::chrono::milliseconds(ms); };
  PredictedWork work;
  EXPECT_EQ(work.left(at(0)), 0);
  work.begin(1, at(1000));
  work.begin(3, at(1500));
  EXPECT_DOUBLE_EQ(work.left(at(2000)), 3);
  EXPECT_DOUBLE_EQ(work.left(at(60'000)), 2.2) << "late is not done: nearly all of one of two";
  work.end(1, at(2500));
  EXPECT_DOUBLE_EQ(work.left(at(3500)), 2);
  work.end(3, at(9000));
  EXPECT_EQ(work.left(at(9000)), 0);
}

TEST(RouteCost, TheRunningBatchCounts) {
  std::vector<NodeView> nodes = four();
  nodes[0].step_base_s = nodes[1].step_base_s = 0.02;
  nodes[0].step_s_per_sequence = nodes[1].step_s_per_sequence = 0.002;
  nodes[0].running = 8;
  EXPECT_EQ(choose_route(nodes, need(100))->decode, NodeHandle{2});
  // A warm cache on the busier node is worth it when it saves more than it slows down.
  const std::vector<std::uint32_t> held{3200, 0, 0, 0};
  RouteNeed wanted = need(4000);
  wanted.held_tokens = held;
  EXPECT_EQ(choose_route(nodes, wanted)->decode, NodeHandle{1});
  wanted.itl_tokens = 1000;
  EXPECT_EQ(choose_route(nodes, wanted)->decode, NodeHandle{2});
}

TEST(RouteCost, ANewNodesBatchGrowsLikeThoseOfOthers) {
  std::vector<NodeView> nodes = four();
  nodes[0].step_base_s = 0.004;
  nodes[0].step_s_per_sequence = 0.0005;
  nodes[0].running = 8;
  nodes[1].running = 12;
  EXPECT_EQ(choose_route(nodes, need(100))->decode, NodeHandle{1});
}

TEST(RouteCost, ScarceMemoryCostsAndTooLittleLosesAlways) {
  std::vector<NodeView> nodes = four();
  nodes[0].blocks_free = 50;
  EXPECT_EQ(choose_route(nodes, need(100))->decode, NodeHandle{2});
  nodes[0].blocks_free = 5;
  nodes[1].running = 16;
  EXPECT_EQ(choose_route(nodes, need(1000))->decode, NodeHandle{2});
}

TEST(RouteCost, LocalOrRemoteByTheSameCost) {
  std::vector<NodeView> nodes = four();
  nodes.resize(3);
  nodes.erase(nodes.begin() + 1);
  nodes[0].local_prefill_max_tokens = 1000;
  EXPECT_TRUE(choose_route(nodes, need(500))->is_local()) << "both idle: no transfer";
  EXPECT_FALSE(choose_route(nodes, need(1001))->is_local()) << "over the node's limit";
  nodes[0].running = 8;
  EXPECT_FALSE(choose_route(nodes, need(500))->is_local()) << "eight streams would stall";
  nodes[1].queued_tokens = 10'000;
  EXPECT_TRUE(choose_route(nodes, need(500))->is_local()) << "the prefill node is far behind";
  const std::vector<std::uint32_t> held{0, 480};
  nodes[0].running = 0;
  nodes[1].queued_tokens = 0;
  RouteNeed wanted = need(500);
  wanted.held_tokens = held;
  EXPECT_FALSE(choose_route(nodes, wanted)->is_local()) << "the prefill node has it";
}

TEST(RouteCost, ASessionKeepsItsNodesWhileTheyAreAsGood) {
  std::vector<NodeView> nodes = four();
  std::map<std::uint64_t, int> taken;
  for (std::uint64_t session = 1; session <= 200; ++session) {
    RouteNeed wanted = need(1000);
    wanted.affinity = session * 77;
    wanted.draw = session;
    const auto first = choose_route(nodes, wanted);
    wanted.draw = session + 1000;
    std::reverse(nodes.begin(), nodes.end());  // another gateway knows them in another order
    const auto again = choose_route(nodes, wanted);
    std::reverse(nodes.begin(), nodes.end());
    ASSERT_EQ(first->prefill, again->prefill);
    ASSERT_EQ(first->decode, again->decode);
    ++taken[first->prefill.value * 10 + first->decode.value];
  }
  EXPECT_EQ(taken.size(), 4U);
  for (const auto& [pair, count] : taken) {
    EXPECT_GT(count, 25) << pair;
  }
  RouteNeed wanted = need(1000);
  wanted.affinity = 77;
  const auto usual = choose_route(nodes, wanted);
  for (NodeView& view : nodes) {
    view.queued_tokens = view.handle == usual->prefill ? 20'000 : 0;
  }
  EXPECT_NE(choose_route(nodes, wanted)->prefill, usual->prefill) << "not at any price";
}

TEST(RouteCost, ColdRequestsSpreadOverEqualPairsAndTakeTheCheaperOfTwo) {
  std::vector<NodeView> nodes = four();
  std::map<std::uint64_t, int> taken;
  for (std::uint64_t draw = 1; draw <= 400; ++draw) {
    RouteNeed wanted = need(1000);
    wanted.draw = draw;
    ++taken[choose_route(nodes, wanted)->prefill.value];
  }
  EXPECT_GT(taken[3], 120);
  EXPECT_GT(taken[4], 120);
  nodes[2].queued_tokens = 20;  // within the slack, yet dearer
  taken.clear();
  for (std::uint64_t draw = 1; draw <= 400; ++draw) {
    RouteNeed wanted = need(1000);
    wanted.draw = draw;
    ++taken[choose_route(nodes, wanted)->prefill.value];
  }
  EXPECT_GT(taken[4], 2 * taken[3]);
  EXPECT_GT(taken[3], 20);
}

TEST(RoutePolicies, OthersForComparison) {
  std::vector<NodeView> nodes = four();
  const std::vector<std::uint32_t> held{0, 0, 3200, 0};
  RouteNeed wanted = need(4000);
  wanted.held_tokens = held;
  wanted.draw = 5;
  nodes[2].queued_tokens = 2000;
  wanted.policy = RoutePolicy::LeastLoad;
  EXPECT_EQ(choose_route(nodes, wanted)->prefill, NodeHandle{4});
  wanted.policy = RoutePolicy::Prefix;
  EXPECT_EQ(choose_route(nodes, wanted)->prefill, NodeHandle{3});
  wanted.policy = RoutePolicy::Random;
  std::map<std::uint64_t, int> taken;
  for (std::uint64_t draw = 1; draw <= 400; ++draw) {
    wanted.draw = draw;
    const auto route = choose_route(nodes, wanted);
    ++taken[route->prefill.value * 10 + route->decode.value];
  }
  EXPECT_EQ(taken.size(), 4U);
  for (const auto& [pair, count] : taken) {
    EXPECT_GT(count, 60) << pair;
  }
}

}  // namespace
}  // namespace baton::gateway
