#include "gateway/dashboard/request_phases.h"

#include <gtest/gtest.h>

namespace baton::gateway {
namespace {

using std::chrono::microseconds;

TEST(RequestPhases, WhatALostNodeDidStandsBeforeWhoWentOn) {
  EndedRequest ended;
  ended.ttft_us = 300;
  ended.total_us = 1000;
  ended.figures.prefill_node = "p0";
  ended.figures.decode_node = "d1";
  ended.figures.queue = microseconds(100);
  ended.figures.prefill = microseconds(150);
  ended.figures.attempts = 2;
  ended.figures.lost.push_back({.was_decoding = true,
                                .by_decode_node = true,
                                .node = "d0",
                                .from = microseconds(300),
                                .to = microseconds(600)});
  const auto phases = phases_of(ended);
  ASSERT_EQ(phases.size(), 4U);
  EXPECT_STREQ(phases[2].name, "decode");
  EXPECT_EQ(phases[2].node, "d0");
  EXPECT_EQ(phases[2].to_us, 600U);
  EXPECT_EQ(phases[3].node, "d1");
  EXPECT_EQ(phases[3].from_us, 600U);
  EXPECT_EQ(phases[3].to_us, 1000U);
}

}  // namespace
}  // namespace baton::gateway
