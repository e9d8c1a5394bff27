#include <gtest/gtest.h>

#include "common/base/random.h"
#include "gateway/routing/link_speeds.h"
#include "gateway/routing/two_term_fit.h"

namespace baton::gateway {
namespace {

TEST(TwoTermFit, FindsBothTermsUnderNoise) {
  auto random = seeded_random(3);
  TwoTermFit fit;
  EXPECT_FALSE(fit.is_known());
  for (int i = 0; i < 200; ++i) {
    const double tokens = 100 + static_cast<double>(random() % 8000);
    const double meetings = tokens * tokens / 2;
    const double noise = 0.95 + 0.1 * static_cast<double>(random() % 1000) / 1000;
    fit.observe(tokens, meetings, (2e-4 * tokens + 3e-8 * meetings) * noise);
  }
  EXPECT_TRUE(fit.is_known());
  EXPECT_NEAR(fit.a(), 2e-4, 3e-5);
  EXPECT_NEAR(fit.b(), 3e-8, 1e-8);
}

TEST(TwoTermFit, OneKindOfObservationGivesOneTerm) {
  TwoTermFit fit;
  for (int i = 0; i < 10; ++i) {
    fit.observe(100, 5000, 0.2);
  }
  EXPECT_DOUBLE_EQ(fit.a(), 2e-3);
  EXPECT_DOUBLE_EQ(fit.b(), 0);
}

TEST(TwoTermFit, NeverBelowZeroAndFollowsChange) {
  TwoTermFit fit;
  for (int i = 0; i < 50; ++i) {
    fit.observe(1, i % 8, 0.1 - 0.001 * (i % 8));  // faster with more: no such machine
  }
  EXPECT_GE(fit.b(), 0);
  for (int i = 0; i < 300; ++i) {
    fit.observe(1, i % 8, 0.01 + 0.002 * (i % 8));
  }
  EXPECT_NEAR(fit.a(), 0.01, 1e-3);
  EXPECT_NEAR(fit.b(), 0.002, 2e-4);
}

TEST(LinkSpeeds, LearnsEachPairAndForgetsANode) {
  LinkSpeeds links;
  const NodePair pair{NodeHandle{1}, NodeHandle{2}};
  links.observe(pair, 100, 1, 1);  // too small to tell
  EXPECT_EQ(links.seconds_per_byte(pair), LinkSpeeds::kUnmeasured);
  for (int i = 0; i < 50; ++i) {
    links.observe(pair, 1'000'000, 0.001, 0.5);  // nearly all of it hides
  }
  EXPECT_NEAR(links.seconds_per_byte(pair), 5.01e-7, 1e-10);
  links.observe(pair, 1'000'000, 0.05, 0.01);  // little to hide behind: the link shows itself
  EXPECT_NEAR(links.seconds_per_byte(pair), 6e-8, 1e-10);
  links.observe(pair, 1'000'000, 0.001, 0.5);
  EXPECT_LT(links.seconds_per_byte(pair), 7e-8);
  links.forget(NodeHandle{2});
  EXPECT_EQ(links.seconds_per_byte(pair), LinkSpeeds::kUnmeasured);
}

}  // namespace
}  // namespace baton::gateway
