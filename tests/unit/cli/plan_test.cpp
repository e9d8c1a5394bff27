// The arithmetic of `baton plan` against numbers worked out by hand.
#include "cli/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>

namespace baton::cli {
namespace {

// 1e9 products a row, 1 GB of weights, 64 KiB of keys and values a token.
PlanModel model() {
  PlanModel value;
  value.layout = {.layers = 32, .kv_heads = 8, .head_dim = 64, .block_tokens = 32};
  value.weight_bytes = 1'000'000'000;
  value.row_products = 1'000'000'000;
  value.head_products = 0;
  value.attention_width = 0;  // so that prefill is linear
  return value;
}

// A prompt token takes 1 ms, a step 100 ms and what its sequences hold.
PlanNode node() {
  return {.ops_per_s = 4e12,
          .read_bytes_per_s = 20e9,
          .prefill_share = 0.5,
          .decode_share = 0.5,
          .arena_bytes = std::uint64_t{64} << 30};
}

PlanWorkload load() {
  return {.input_tokens = 1024,
          .output_tokens = 100,
          .requests_per_s = 0.1,
          .ttft_s = 3.0,
          .itl_s = 0.2};
}

TEST(Plan, OneNodeOfEachForALowRate) {
  const auto plan = make_plan(model(), node(), load());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->prefill_nodes, 1U);
  EXPECT_EQ(plan->decode_nodes, 1U);
  EXPECT_NEAR(plan->prefill_s, 1.024, 1e-9);
  EXPECT_NEAR(plan->prefill_busy, 0.1024, 1e-9);
  // 0.1024 wait, just above one in ten: half a service time's share of ln(1.024).
  EXPECT_NEAR(plan->ttft_s - plan->transfer_tail_s,
              1.024 + 1.024 / (2 * (1 - 0.1024)) * std::log(0.1024 / 0.1),
              1e-3);
  EXPECT_EQ(plan->kv_bytes, 1024ULL * 65536);
  EXPECT_NEAR(plan->link_needed, 1024.0 * 65536 / 1.024, 1);
  // Little: 10 tokens a second, each held for a step.
  EXPECT_NEAR(plan->decode_batch, 10 * (0.1 + plan->decode_batch * 1074 * 65536 / 10e9), 1e-3);
  EXPECT_LE(plan->itl_s, 0.2);
  EXPECT_GE(plan->rate_headroom, 1.0);
}

TEST(Plan, BothPoolsGrowWithTheRate) {
  PlanWorkload busy = load();
  busy.requests_per_s = 10;  // 10.24 prefill nodes' time alone
  const auto plan = make_plan(model(), node(), busy);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GE(plan->prefill_nodes, 12U);
  EXPECT_LE(plan->prefill_busy, 0.85);
  EXPECT_GT(plan->decode_nodes, 1U);
  EXPECT_LE(plan->itl_s, busy.itl_s);
  EXPECT_LE(plan->ttft_s, busy.ttft_s);
  PlanWorkload cached = busy;
  cached.cached_share = 0.9;
  const auto less = make_plan(model(), node(), cached);
  ASSERT_TRUE(less) << less.error().message;
  EXPECT_LT(less->prefill_nodes, plan->prefill_nodes);
  EXPECT_EQ(less->decode_nodes, plan->decode_nodes);
}

TEST(Plan, ASlowLinkShowsInTheFirstToken) {
  PlanNode slow = node();
  slow.link_bytes_per_s = 1024.0 * 65536 / 2;  // two seconds a prompt, prefill takes one
  const auto plan = make_plan(model(), slow, load());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_NEAR(plan->transfer_tail_s, 2 - 1.024 + 2.0 / 32, 1e-9);
}

TEST(Plan, BlocksBoundTheBatch) {
  PlanWorkload busy = load();
  busy.requests_per_s = 0.5;
  const auto roomy = make_plan(model(), node(), busy);
  ASSERT_TRUE(roomy) << roomy.error().message;
  PlanNode small = node();
  small.arena_bytes = std::uint64_t{36} * 2 * model().layout.block_bytes_all_layers();
  const auto plan = make_plan(model(), small, busy);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(plan->decode_nodes, roomy->decode_nodes);
  EXPECT_LE(plan->blocks_needed, plan->blocks_there);
}

TEST(Plan, OnePoolDoesWhenTimeIsAmple) {
  const auto plan = make_plan(model(), node(), load());
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->colocated_nodes);
  EXPECT_LE(*plan->colocated_nodes, 2U);
  EXPECT_FALSE(plan->pays());
}

TEST(Plan, ATightItlLeavesNoTimeForPrompts) {
  PlanWorkload tight = load();
  tight.itl_s = 0.125;  // a step alone takes 0.107
  tight.ttft_s = 1.2;   // a prompt alone takes 1.024
  tight.requests_per_s = 0.05;
  const auto plan = make_plan(model(), node(), tight);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->colocated_nodes);
  EXPECT_TRUE(plan->pays());
}

TEST(Plan, WhatCannotBeMetSaysWhy) {
  const auto reason = [](auto change) {
    PlanModel m = model();
    PlanNode n = node();
    PlanWorkload l = load();
    change(m, n, l);
    const auto plan = make_plan(m, n, l);
    return plan ? std::string("planned") : plan.error().message;
  };
  EXPECT_NE(reason([](auto&, auto&, auto& l) { l.ttft_s = 1; }).find("TTFT target"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto&, auto& l) { l.itl_s = 0.05; }).find("ITL target"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto& n, auto&) { n.arena_bytes = 1 << 20; }).find("arena"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto&, auto& l) { l.requests_per_s = 1e6; }).find("4096"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto&, auto& l) { l.requests_per_s = 0; }).find("requests"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto&, auto& l) { l.cached_share = 1; }).find("cached"),
            std::string::npos);
  EXPECT_NE(reason([](auto&, auto& n, auto&) { n.ops_per_s = std::nan(""); }).find("products"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::cli
