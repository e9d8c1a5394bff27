#include "gateway/routing/routing.h"

#include <gtest/gtest.h>

#include "common/types/prefix_hash.h"

namespace baton::gateway {
namespace {

using std::chrono::seconds;

std::vector<TokenId> tokens(std::size_t count, TokenId first = 1) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(first + static_cast<TokenId>(i));
  }
  return ids;
}
NodeView view(std::uint64_t handle, NodeRole role, std::uint32_t block_tokens = 16) {
  NodeView node;
  node.handle = NodeHandle{handle};
  node.role = role;
  node.block_tokens = block_tokens;
  node.credits_left = 4;
  node.max_batch = 4;
  node.blocks_free = 100;
  return node;
}
std::vector<std::uint32_t> copy(std::span<const std::uint32_t> values) {
  return {values.begin(), values.end()};
}

class RoutingTest : public ::testing::Test {
 protected:
  std::vector<std::uint32_t> held() {
    return copy(routing.held_tokens(nodes, prompt, chains, now));
  }
  std::vector<std::uint64_t> names(std::uint32_t block_tokens) {
    return chain_of(chains, prompt, block_tokens).hashes;
  }

  Routing routing{{}};
  std::vector<NodeView> nodes{view(1, NodeRole::Decode), view(2, NodeRole::Prefill)};
  std::vector<TokenId> prompt = tokens(100);
  PromptChains chains;
  TimePoint now{};
};

TEST_F(RoutingTest, ChainsNameFullBlocks) {
  const PromptChains made = hash_prompt(prompt, std::vector<std::uint32_t>{16, 32});
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].hashes.size(), 6U);
  EXPECT_EQ(made[1].hashes.size(), 3U);
  const std::span<const TokenId> all(prompt);
  const std::uint64_t first = next_prefix_hash(0, all.first(16));
  EXPECT_EQ(made[0].hashes[0], first);
  EXPECT_EQ(made[0].hashes[1], next_prefix_hash(first, all.subspan(16, 16)));
}

TEST_F(RoutingTest, EventsSayWhatANodeHolds) {
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 0}));
  const auto hashes = names(16);
  routing.on_events(
      NodeHandle{2},
      {.sequence = 1, .reset = true, .stored = std::span(hashes).first(2), .removed = {}});
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 32}));
  routing.on_events(NodeHandle{2},
                    {.sequence = 2, .stored = std::span(hashes).subspan(2, 2), .removed = {}});
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 64}));
  routing.on_events(NodeHandle{2},
                    {.sequence = 3, .stored = {}, .removed = std::span(hashes).subspan(3, 1)});
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 48}));
  EXPECT_EQ(routing.announced(NodeHandle{2}), 3U);
  routing.on_node_down(NodeHandle{2});
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 0}));
}

TEST_F(RoutingTest, AGapOrAResetEmptiesTheNode) {
  const auto hashes = names(16);
  const std::span<const std::uint64_t> all(hashes);
  routing.on_events(NodeHandle{2}, {.sequence = 1, .reset = true, .stored = all, .removed = {}});
  routing.on_events(NodeHandle{2}, {.sequence = 3, .stored = all.subspan(1), .removed = {}});
  EXPECT_EQ(held()[1], 0U) << "the first block may have gone in the event that was lost";
  routing.on_events(NodeHandle{2}, {.sequence = 4, .stored = all.first(1), .removed = {}});
  EXPECT_EQ(held()[1], 96U);
  routing.on_events(NodeHandle{2},
                    {.sequence = 5, .reset = true, .stored = all.first(1), .removed = {}});
  EXPECT_EQ(held()[1], 16U);
}

TEST_F(RoutingTest, NodesWithOtherBlockSizesAreAskedInTheirs) {
  nodes = {view(1, NodeRole::Decode, 32), view(2, NodeRole::Prefill, 16)};
  const auto small = names(16);
  const auto large = names(32);
  routing.on_events(NodeHandle{1}, {.sequence = 1, .reset = true, .stored = large, .removed = {}});
  routing.on_events(NodeHandle{2}, {.sequence = 1, .reset = true, .stored = small, .removed = {}});
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{96, 96}));
}

TEST_F(RoutingTest, WhatWasJustSentCountsWhereItIsComputedAndThenWhereItIsMoved) {
  const Route route{NodeHandle{2}, NodeHandle{1}};
  const auto ticket = routing.sent(route, nodes, prompt, chains);
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 96}));
  now += seconds(60);
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 96})) << "still in work";
  routing.settled(ticket, now, true);
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{96, 96}));
  now += seconds(2);
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{0, 0})) << "never announced";
  routing.sent(Route{NodeHandle{}, NodeHandle{1}}, nodes, prompt, chains);
  EXPECT_EQ(held(), (std::vector<std::uint32_t>{96, 0})) << "computed on the decode node";
}

TEST_F(RoutingTest, LearnsSpeedsOfNodes) {
  routing.describe(nodes, now);
  EXPECT_EQ(nodes[1].prefill_s_per_token, 0);
  for (std::uint32_t i = 1; i <= 20; ++i) {
    routing.on_prefill(NodeHandle{2}, 0, i * 100, i * 100 * 1e-3);
    routing.on_step(NodeHandle{1}, i, i % 4, 0.02 + 0.001 * (i % 4), now);
  }
  routing.describe(nodes, now);
  EXPECT_NEAR(nodes[1].prefill_s_per_token, 1e-3, 1e-6);
  EXPECT_NEAR(nodes[1].prefill_s_per_meeting, 0, 1e-9);
  EXPECT_NEAR(nodes[0].step_base_s, 0.02, 1e-6);
  EXPECT_NEAR(nodes[0].step_s_per_sequence, 0.001, 1e-6);
}

TEST_F(RoutingTest, WhatAnIdleNodeToldOfItsStepsIsForgotten) {
  const auto described = [&] {
    NodeView node = nodes[0];
    node.step_s = 0.5F;  // a node tells its last figure for ever
    routing.describe({&node, 1}, now);
    return node;
  };
  for (std::uint32_t i = 1; i <= 8; ++i) {
    routing.on_step(NodeHandle{1}, i, 1 + i % 2, 0.5, now);
  }
  EXPECT_GT(described().step_base_s, 0.4);
  now += seconds(11);
  routing.on_step(NodeHandle{1}, 8, 0, 0.5, now);  // a heartbeat, no new step
  EXPECT_EQ(described().step_base_s, 0);
  EXPECT_EQ(described().step_s, 0);
  for (std::uint32_t i = 9; i <= 12; ++i) {
    routing.on_step(NodeHandle{1}, i, 1 + i % 2, 0.004, now);
  }
  EXPECT_NEAR(described().step_base_s, 0.004, 1e-6) << "the old figures are gone";
}

}  // namespace
}  // namespace baton::gateway
