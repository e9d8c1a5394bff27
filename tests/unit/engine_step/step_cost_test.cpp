#include "engine/step/step_cost.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/step/step_pace.h"

namespace baton::engine {
namespace {

double truth(const StepShape& shape) {
  return 3e-3 + shape.rows * 0.4e-3 + shape.prompt_rows * 0.2e-3 +
         static_cast<double>(shape.context) * 1e-7;
}

StepShape any_shape(std::mt19937& random) {
  return {.rows = static_cast<std::uint32_t>(1 + random() % 16),
          .prompt_rows = random() % 3 == 0 ? static_cast<std::uint32_t>(random() % 128) : 0,
          .context = random() % 20'000};
}

TEST(StepCost, KnowsNothingAtFirst) {
  const StepCost cost;
  EXPECT_EQ(cost.predict({.rows = 4, .context = 100}), 0.0);
  EXPECT_EQ(cost.row_seconds(100), 0.0);
}

TEST(StepCost, FindsThePartsOfNoisySteps) {
  std::mt19937 random(1);
  StepCost cost;
  for (int i = 0; i < 400; ++i) {
    const StepShape shape = any_shape(random);
    cost.observe(shape, truth(shape) * (0.9 + 0.2 * (random() % 1000) / 1000.0));
  }
  for (int i = 0; i < 50; ++i) {
    const StepShape shape = any_shape(random);
    EXPECT_NEAR(cost.predict(shape), truth(shape), 0.1 * truth(shape));
  }
  EXPECT_NEAR(cost.row_seconds(1000), 0.5e-3, 0.1e-3);
}

TEST(StepCost, RowsAreFreeUntilTheyWereTried) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) {
    cost.observe({.rows = 1}, 4e-3);
  }
  EXPECT_LT(cost.row_seconds(0), 0.1e-3);
  cost.observe({.rows = 9}, 12e-3);
  EXPECT_NEAR(cost.row_seconds(0), 1e-3, 0.2e-3);
  EXPECT_NEAR(cost.predict({.rows = 1}), 4e-3, 0.4e-3);
}

TEST(StepCost, ADisturbedStepCountsLittle) {
  std::mt19937 random(2);
  StepCost cost;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = any_shape(random);
    cost.observe(shape, truth(shape) * (i % 50 == 49 ? 100 : 1));
  }
  const StepShape shape{.rows = 4, .context = 4000};
  EXPECT_LT(cost.predict(shape), 1.5 * truth(shape));
}

TEST(StepCost, FollowsAMachineThatChanges) {
  std::mt19937 random(4);
  StepCost cost;
  for (int i = 0; i < 2000; ++i) {
    const StepShape shape = any_shape(random);
    cost.observe(shape, truth(shape) * (i < 500 ? 1 : 2));
  }
  const StepShape shape{.rows = 4, .context = 4000};
  EXPECT_NEAR(cost.predict(shape), 2 * truth(shape), 0.1 * truth(shape));
}

// Nothing ever costs less than nothing, whatever was seen.
TEST(StepCost, NoPartIsNegative) {
  std::mt19937 random(6);
  for (int round = 0; round < 50; ++round) {
    StepCost cost;
    for (int i = 0; i < 40; ++i) {
      cost.observe(any_shape(random), static_cast<double>(random() % 1000) * 1e-5);
      for (int k = 0; k < 5; ++k) {
        const StepShape shape = any_shape(random);
        StepShape more = shape;
        more.rows += 3;
        EXPECT_GE(cost.predict(shape), 0.0);
        EXPECT_GE(cost.predict(more), cost.predict(shape));
      }
    }
  }
}

TEST(StepPace, AStepThatWasHeldUpIsSoonForgotten) {
  StepPace pace;
  EXPECT_EQ(pace.seconds(), 0);
  for (int i = 0; i < 20; ++i) {
    pace.observe(0.004);
  }
  pace.observe(2.5);
  EXPECT_LT(pace.seconds(), 0.008);
  for (int i = 0; i < 200; ++i) {
    pace.observe(0.1);
  }
  EXPECT_NEAR(pace.seconds(), 0.1, 1e-3) << "steps that stay slow are the pace";
}

}  // namespace
}  // namespace baton::engine
