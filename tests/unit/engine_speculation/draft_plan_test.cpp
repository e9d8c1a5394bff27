#include "engine/speculation/draft_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace baton::engine {
namespace {

using Counts = std::vector<std::uint32_t>;

TEST(DraftPlan, TakesAllWhereRowsAreFree) {
  const DraftOffer offers[] = {{.tokens = 5, .chance = 0.1}, {}, {.tokens = 3, .chance = 0.9}};
  EXPECT_EQ(plan_drafts(offers, 3, 0.01), (Counts{5, 0, 3}));
  EXPECT_EQ(plan_drafts(offers, 3, 0.0), (Counts{5, 0, 3}));
  EXPECT_TRUE(plan_drafts({}, 0, 0.0).empty());
}

TEST(DraftPlan, ALoneStreamDraftsAndABoundBatchDoesNot) {
  const DraftOffer offer{.tokens = 8, .chance = 0.8, .row_seconds = 1.0};
  const auto alone = plan_drafts({&offer, 1}, 1, 10.0);
  EXPECT_GE(alone[0], 4U);
  const std::vector<DraftOffer> many(16, offer);
  const auto batch = plan_drafts(many, 16, 5.0 + 16 * 1.0);
  EXPECT_EQ(std::accumulate(batch.begin(), batch.end(), 0U), 0U);
}

TEST(DraftPlan, LongerWhereTrustIsHigher) {
  const DraftOffer offers[] = {{.tokens = 8, .chance = 0.95, .row_seconds = 1.0},
                               {.tokens = 8, .chance = 0.6, .row_seconds = 1.0},
                               {.tokens = 8, .chance = 0.05, .row_seconds = 1.0}};
  const auto counts = plan_drafts(offers, 3, 12.0);
  EXPECT_GT(counts[0], counts[1]);
  EXPECT_GT(counts[1], counts[2]);
  EXPECT_EQ(counts[2], 0U);
}

TEST(DraftPlan, StaysWithinTheTarget) {
  const DraftOffer offer{.tokens = 8, .chance = 0.95, .row_seconds = 1.0};
  EXPECT_EQ(plan_drafts({&offer, 1}, 1, 10.0, 12.5), Counts{2});
  EXPECT_EQ(plan_drafts({&offer, 1}, 1, 10.0, 9.0), Counts{0});
}

// No draft is taken that lowers the expected rate, and a step stays within its rows.
TEST(DraftPlan, NeverPlansForLess) {
  std::mt19937 random(3);
  const auto real = [&] { return static_cast<double>(random() % 1000) / 1000.0; };
  for (int round = 0; round < 500; ++round) {
    const std::size_t sequences = 1 + random() % 12;
    std::vector<DraftOffer> offers(sequences);
    for (DraftOffer& offer : offers) {
      offer = {.tokens = static_cast<std::uint32_t>(random() % 12),
               .chance = real(),
               .row_seconds = 0.01 + real()};
    }
    const double step = 0.1 + 10 * real();
    const auto counts = plan_drafts(offers, sequences, step);
    double tokens = static_cast<double>(sequences);
    double seconds = step;
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < sequences; ++i) {
      ASSERT_LE(counts[i], offers[i].tokens);
      double chance = 1;
      for (std::uint32_t j = 0; j < counts[i]; ++j) {
        chance *= offers[i].chance;
        tokens += chance;
        seconds += offers[i].row_seconds;
      }
      all += counts[i];
    }
    EXPECT_LE(all, kMaxStepDrafts);
    EXPECT_GE(tokens / seconds, static_cast<double>(sequences) / step);
  }
}

}  // namespace
}  // namespace baton::engine
