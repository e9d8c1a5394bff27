#include "gateway/routing/router.h"

#include <gtest/gtest.h>

#include <vector>

#include "gateway/requests/phase.h"

namespace baton::gateway {
namespace {

NodeView decode(std::uint64_t handle) {
  NodeView node;
  node.handle = NodeHandle{handle};
  node.role = NodeRole::Decode;
  node.max_batch = 8;
  node.blocks_free = 100;
  return node;
}
NodeView prefill(std::uint64_t handle) {
  NodeView node;
  node.handle = NodeHandle{handle};
  node.role = NodeRole::Prefill;
  node.credits_left = 2;
  return node;
}
RouteNeed need(std::uint32_t prompt = 100) {
  return RouteNeed{.prompt_tokens = prompt, .context_tokens = prompt, .total_tokens = prompt + 100};
}

TEST(Router, TakesTheLessLoadedOfEach) {
  std::vector<NodeView> nodes{decode(1), decode(2), prefill(3), prefill(4)};
  nodes[0].running = 4;
  nodes[2].queued_tokens = 500;
  const auto route = choose_route(nodes, need());
  ASSERT_TRUE(route);
  EXPECT_EQ(route->decode, NodeHandle{2});
  EXPECT_EQ(route->prefill, NodeHandle{4});
}

TEST(Router, PrefillIsChosenByTimeNotByTokens) {
  std::vector<NodeView> nodes{decode(1), prefill(2), prefill(3)};
  nodes[1].queued_tokens = 1000;
  nodes[1].prefill_tokens_per_s = 10'000;
  nodes[2].queued_tokens = 500;
  nodes[2].prefill_tokens_per_s = 100;
  EXPECT_EQ(choose_route(nodes, need())->prefill, NodeHandle{2});
}

TEST(Router, RoomForTheRequestComesFirst) {
  std::vector<NodeView> nodes{decode(1), decode(2), prefill(3)};
  nodes[0].blocks_free = 2;
  nodes[1].running = 7;
  EXPECT_EQ(choose_route(nodes, need())->decode, NodeHandle{2});
}

TEST(Router, NoPairWithoutEitherSide) {
  EXPECT_EQ(choose_route({}, need()).error(), RouteMiss::NoPair);
  EXPECT_EQ(choose_route(std::vector{decode(1)}, need()).error(), RouteMiss::NoPair);
  EXPECT_EQ(choose_route(std::vector{prefill(1)}, need()).error(), RouteMiss::NoPair);
  EXPECT_FALSE(has_usable_pair(std::vector{decode(1)}));
  EXPECT_TRUE(has_usable_pair(std::vector{decode(1), prefill(2)}));
}

TEST(Router, WaitsForCreditsBusyAndSuspectNodes) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[1].credits_left = 0;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoCapacity);
  nodes = {decode(1), prefill(2)};
  nodes[0].is_busy = true;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoCapacity);
  nodes = {decode(1), prefill(2)};
  nodes[0].is_alive = false;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoCapacity);
}

TEST(Router, DrainingNodesAreNoPair) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[0].is_draining = true;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoPair);
  EXPECT_FALSE(has_usable_pair(nodes));
}

TEST(Router, PairsMustAgreeOnLayoutAndNumerics) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[1].numerics_hash = 9;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoPair);
  nodes[1].numerics_hash = 0;
  nodes[1].layout.block_tokens = 64;  // the prefill node converts
  EXPECT_TRUE(choose_route(nodes, need()));
  nodes[1].layout.layers = 9;
  EXPECT_EQ(choose_route(nodes, need()).error(), RouteMiss::NoPair);
  EXPECT_FALSE(has_usable_pair(nodes));
}

TEST(Router, ShortPromptsGoWithoutPrefillNode) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[0].local_prefill_max_tokens = 100;
  EXPECT_TRUE(choose_route(nodes, need(100))->is_local());
  EXPECT_FALSE(choose_route(nodes, need(101))->is_local());
  nodes.pop_back();
  EXPECT_TRUE(choose_route(nodes, need(50))->is_local());
  EXPECT_EQ(choose_route(nodes, need(101)).error(), RouteMiss::NoPair);
  EXPECT_TRUE(has_usable_pair(nodes));
}

TEST(Router, AvoidsNodesThatFailed) {
  const std::vector<NodeView> nodes{decode(1), decode(2), prefill(3)};
  const NodeHandle avoid[] = {NodeHandle{1}};
  RouteNeed wanted = need();
  wanted.avoid = avoid;
  EXPECT_EQ(choose_route(nodes, wanted)->decode, NodeHandle{2});
}

TEST(Router, AvoidsOnlyWhileThereIsAnotherPair) {
  std::vector<NodeView> nodes{decode(1), decode(2), prefill(3)};
  const NodeHandle avoid[] = {NodeHandle{1}};
  RouteNeed wanted = need();
  wanted.avoid = avoid;
  nodes[1].is_busy = true;
  EXPECT_EQ(choose_route(nodes, wanted).error(), RouteMiss::NoCapacity);
  nodes[1].is_draining = true;
  EXPECT_EQ(choose_route(nodes, wanted)->decode, NodeHandle{1});
}

TEST(Router, AvoidsAPairAndNeverTakesOneThatIsOut) {
  const std::vector<NodeView> nodes{decode(1), prefill(3), prefill(4)};
  const NodePair pair[] = {{NodeHandle{3}, NodeHandle{1}}};
  const NodePair both[] = {{NodeHandle{3}, NodeHandle{1}}, {NodeHandle{4}, NodeHandle{1}}};
  RouteNeed wanted = need();
  EXPECT_EQ(choose_route(nodes, wanted)->prefill, NodeHandle{3});
  wanted.avoid_pairs = pair;
  EXPECT_EQ(choose_route(nodes, wanted)->prefill, NodeHandle{4});
  wanted.avoid_pairs = both;
  EXPECT_TRUE(choose_route(nodes, wanted));
  wanted.avoid_pairs = {};
  wanted.out = pair;
  EXPECT_EQ(choose_route(nodes, wanted)->prefill, NodeHandle{4});
  wanted.out = both;
  EXPECT_EQ(choose_route(nodes, wanted).error(), RouteMiss::NoPair);
  EXPECT_FALSE(has_usable_pair(nodes, both));
  EXPECT_TRUE(has_usable_pair(nodes, pair));
}

TEST(Router, AResumeStaysWithinItsModel) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[0].model_stamp = nodes[1].model_stamp = 7;
  RouteNeed wanted = need();
  wanted.model_stamp = 7;
  EXPECT_TRUE(choose_route(nodes, wanted));
  wanted.model_stamp = 8;
  EXPECT_EQ(choose_route(nodes, wanted).error(), RouteMiss::NoPair);
}

TEST(Router, AGrownPromptPrefersAPrefillNode) {
  std::vector<NodeView> nodes{decode(1), prefill(2)};
  nodes[0].local_prefill_max_tokens = 100;
  RouteNeed wanted = need(100);
  wanted.context_tokens = 150;
  EXPECT_FALSE(choose_route(nodes, wanted)->is_local());
  nodes.pop_back();
  EXPECT_TRUE(choose_route(nodes, wanted)->is_local());
}

TEST(Phase, FinalPhasesHaveNoWayOut) {
  const Phase all[] = {Phase::Queued,
                       Phase::Prefilling,
                       Phase::Decoding,
                       Phase::Ending,
                       Phase::Finished,
                       Phase::Failed,
                       Phase::Refused,
                       Phase::Cancelled};
  int legal = 0;
  for (const Phase from : all) {
    for (const Phase to : all) {
      legal += is_legal(from, to) ? 1 : 0;
      if (is_final(from) || from == to) {
        EXPECT_FALSE(is_legal(from, to)) << to_string(from) << " to " << to_string(to);
      }
    }
    if (!is_final(from)) {
      EXPECT_TRUE(is_legal(from, Phase::Cancelled)) << to_string(from);
    }
  }
  EXPECT_EQ(legal, 17);
  EXPECT_FALSE(is_legal(Phase::Queued, Phase::Decoding));
}

}  // namespace
}  // namespace baton::gateway
