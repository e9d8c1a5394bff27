#include "engine/step/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>

namespace baton::engine {
namespace {

using std::chrono::seconds;

std::unique_ptr<Sequence> sequence_of(std::uint32_t prompt, std::uint32_t computed = 0) {
  GenerateRequest request;
  request.prompt.assign(prompt, 1);
  request.max_tokens = 1000;
  return std::make_unique<Sequence>(
      request, *check_size(request, 1U << 20U, 10), BlockTable{}, computed);
}

std::unique_ptr<Sequence> decoding(std::uint32_t prompt) {
  auto sequence = sequence_of(prompt, prompt);
  sequence->accept(2);
  return sequence;
}

// A machine whose steps take 2 ms, 1 ms a sampled row, 0.1 ms a prompt row.
double machine_seconds(const StepShape& shape) {
  return 2e-3 + 1e-3 * shape.rows + 1e-4 * shape.prompt_rows;
}

StepCost learned() {
  std::mt19937 random(1);
  StepCost cost;
  for (int i = 0; i < 500; ++i) {
    const StepShape shape{.rows = static_cast<std::uint32_t>(random() % 10),
                          .prompt_rows = static_cast<std::uint32_t>(random() % 128),
                          .context = random() % 10'000};
    cost.observe(shape, machine_seconds(shape));
  }
  return cost;
}

std::uint32_t total(const std::vector<PlannedSlice>& slices) {
  std::uint32_t sum = 0;
  for (const PlannedSlice& slice : slices) {
    sum += slice.count;
  }
  return sum;
}

TEST(Planner, PrefillTakesTheMostUrgentFirstUpToTheChunk) {
  auto a = sequence_of(100);
  auto b = sequence_of(40);
  auto c = sequence_of(100);
  Sequence* all[] = {a.get(), b.get(), c.get()};
  const auto slices = plan_prefill(all, {.chunk_tokens = 64, .step_tokens = 120});
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].count, 64U);
  EXPECT_EQ(slices[1].count, 40U);
  EXPECT_EQ(slices[2].count, 16U);
}

TEST(Planner, AShortPromptPassesTheChunksOfLongOnes) {
  auto a = sequence_of(5000);
  auto b = sequence_of(5000);
  auto c = sequence_of(20);
  Sequence* all[] = {a.get(), b.get(), c.get()};
  const auto slices = plan_prefill(all, {.chunk_tokens = 64, .step_tokens = 128});
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].count, 64U);
  EXPECT_EQ(slices[1].count, 44U);
  EXPECT_EQ(slices[2].count, 20U);
}

TEST(Planner, UrgencyIsDeadlineThenAgeThenPatience) {
  const TimePoint start{};
  auto a = sequence_of(10);
  auto b = sequence_of(10);
  auto c = sequence_of(10);
  auto d = sequence_of(10);
  const std::array wishes{PrefillWish{a.get(), start, start + seconds(600)},
                          PrefillWish{b.get(), start + seconds(1), start + seconds(600)},
                          PrefillWish{c.get(), start + seconds(2), start + seconds(30)},
                          PrefillWish{d.get(), start + seconds(3), start + seconds(600)}};
  EXPECT_EQ(by_urgency(wishes, start + seconds(4), seconds(10)),
            (std::vector{c.get(), a.get(), b.get(), d.get()}));
  EXPECT_EQ(by_urgency(wishes, start + seconds(11), seconds(10)),
            (std::vector{a.get(), b.get(), c.get(), d.get()}));
}

// Prompts of all lengths that keep coming: steps stay within their limits and are full where they
// could be, the most urgent always gets on, a short one ends at once, and all end.
TEST(Planner, PrefillIsBoundedAndFair) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const PrefillLimits limits{.chunk_tokens = static_cast<std::uint32_t>(8 + random() % 64),
                               .step_tokens = static_cast<std::uint32_t>(64 + random() % 100)};
    std::vector<std::unique_ptr<Sequence>> waiting;
    std::map<const Sequence*, int> waited;
    for (int step = 0; step < 300; ++step) {
      if (step < 200 && random() % 2 == 0) {
        waiting.push_back(sequence_of(static_cast<std::uint32_t>(
            random() % 4 == 0 ? 1 + random() % 400 : 1 + random() % 10)));
      }
      std::vector<Sequence*> order;
      std::uint64_t could = 0;
      for (const auto& sequence : waiting) {
        order.push_back(sequence.get());
        could += std::min(sequence->num_pending(), limits.chunk_tokens);
      }
      const auto slices = plan_prefill(order, limits);
      EXPECT_EQ(total(slices), std::min<std::uint64_t>(could, limits.step_tokens));
      if (!order.empty()) {
        ASSERT_FALSE(slices.empty());
        EXPECT_EQ(slices[0].sequence, order[0]);
        EXPECT_GE(slices[0].count,
                  std::min({order[0]->num_pending(),
                            limits.chunk_tokens,
                            limits.step_tokens - limits.step_tokens / 4}));
      }
      // The first that fits the kept share ends in this step.
      const auto first_short = std::ranges::find_if(order, [&](const Sequence* sequence) {
        return sequence->num_pending() <= std::min(limits.chunk_tokens, limits.step_tokens / 4);
      });
      bool is_done = first_short == order.end();
      for (const PlannedSlice& slice : slices) {
        ASSERT_GE(slice.count, 1U);
        ASSERT_LE(slice.count, std::min(slice.sequence->num_pending(), limits.chunk_tokens));
        is_done = is_done ||
                  (slice.sequence == *first_short && slice.count == slice.sequence->num_pending());
      }
      EXPECT_TRUE(is_done);
      for (const PlannedSlice& slice : slices) {
        const SampledToken token{.token = 2};
        const bool ends = slice.count == slice.sequence->num_pending();
        slice.sequence->advance(slice.count, ends ? &token : nullptr);
      }
      std::erase_if(waiting, [](const auto& sequence) { return !sequence->is_prefilling(); });
    }
    EXPECT_TRUE(waiting.empty());
  }
}

TEST(Planner, DecodeComesBeforeLocalPrefill) {
  auto prompt = sequence_of(300);
  auto a = decoding(10);
  auto b = decoding(20);
  const std::array all{DecodeWish{prompt.get()}, DecodeWish{a.get()}, DecodeWish{b.get()}};
  const auto slices = plan_decode(all, {.max_batch = 8, .prefill_tokens = 128}, {});
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].sequence, a.get());
  EXPECT_EQ(slices[0].count, 1U);
  EXPECT_EQ(slices[2].sequence, prompt.get());
  EXPECT_EQ(slices[2].count, 128U);
}

TEST(Planner, DecodeStopsAtMaxBatch) {
  auto a = decoding(10);
  auto b = decoding(20);
  auto prompt = sequence_of(300);
  const std::array all{DecodeWish{a.get()}, DecodeWish{b.get()}, DecodeWish{prompt.get()}};
  EXPECT_EQ(plan_decode(all, {.max_batch = 2, .prefill_tokens = 128}, {}).size(), 2U);
}

TEST(Planner, NothingPendingGivesNothing) {
  EXPECT_TRUE(plan_decode({}, {}, {}).empty());
  EXPECT_TRUE(plan_prefill({}, {}).empty());
  EXPECT_TRUE(by_urgency({}, {}, {}).empty());
}

TEST(Planner, TheTargetBoundsSequencesAndChunks) {
  const StepCost cost = learned();
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<DecodeWish> wishes;
  for (int i = 0; i < 12; ++i) {
    sequences.push_back(decoding(10));
    wishes.push_back({sequences.back().get()});
  }
  const DecodeLimits limits{.max_batch = 32, .prefill_tokens = 128, .step_seconds = 8.3e-3};
  EXPECT_EQ(plan_decode(wishes, limits, cost).size(), 6U);
  EXPECT_EQ(largest_batch(limits, cost, 10), 6U);
  EXPECT_EQ(largest_batch({.max_batch = 4, .step_seconds = 8.3e-3}, cost, 10), 4U);
  EXPECT_EQ(largest_batch({.max_batch = 4, .step_seconds = 1e-6}, cost, 10), 1U);
  EXPECT_EQ(largest_batch({.max_batch = 32}, cost, 10), 32U);
  // Two running, 4 ms; 4.3 ms are left for a chunk.
  auto prompt = sequence_of(300);
  const std::array mixed{wishes[0], wishes[1], DecodeWish{prompt.get()}};
  const auto slices = plan_decode(mixed, limits, cost);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_NEAR(slices[2].count, 43, 3);
  // However slow, a prompt gets on; and alone it takes its whole chunk.
  const auto slow = plan_decode(mixed, {.prefill_tokens = 128, .step_seconds = 1e-6}, cost);
  ASSERT_EQ(slow.size(), 2U);
  EXPECT_EQ(slow[1].count, kLeastPrefill);
  const auto alone = plan_decode(std::array{DecodeWish{prompt.get()}}, limits, cost);
  EXPECT_EQ(alone.at(0).count, 128U);
}

// Whatever the target, nobody starves: with n sequences, of which some k fit a step, each is in one
// of every ceil(n / k) steps; and no step is planned longer than it may be.
TEST(Planner, RotationIsFair) {
  const StepCost cost = learned();
  std::mt19937 random(9);
  for (int round = 0; round < 40; ++round) {
    const DecodeLimits limits{.max_batch = static_cast<std::uint32_t>(2 + random() % 20),
                              .prefill_tokens = static_cast<std::uint32_t>(1 + random() % 128),
                              .step_seconds = (1 + random() % 20) * 1e-3};
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<DecodeWish> wishes;
    const std::size_t running = 1 + random() % 15;
    for (std::size_t i = 0; i < running; ++i) {
      sequences.push_back(decoding(10));
      wishes.push_back({sequences.back().get()});
    }
    sequences.push_back(sequence_of(20'000));
    wishes.push_back({sequences.back().get()});
    std::map<const Sequence*, std::uint64_t> last;  // step
    std::map<const Sequence*, std::uint64_t> turns;
    std::map<const Sequence*, int> count;
    std::uint64_t turn = 0;
    for (std::uint64_t step = 1; step <= 60; ++step) {
      for (DecodeWish& wish : wishes) {
        wish.last_turn = turns[wish.sequence];
      }
      const auto slices = plan_decode(wishes, limits, cost);
      ASSERT_FALSE(slices.empty());
      ASSERT_LE(slices.size(), limits.max_batch);
      const auto answers = static_cast<std::size_t>(std::ranges::count_if(
          slices, [](const PlannedSlice& slice) { return !slice.sequence->is_prefilling(); }));
      const StepShape shape = shape_of(slices);
      if (answers > 1 || (answers == 1 && shape.prompt_rows > kLeastPrefill)) {
        const bool least = shape.prompt_rows <= kLeastPrefill;
        EXPECT_LE(cost.predict(shape),
                  limits.step_seconds + (least ? machine_seconds({.prompt_rows = 20}) : 1e-5));
      }
      for (const PlannedSlice& slice : slices) {
        if (slice.sequence->is_prefilling()) {
          slice.sequence->advance(slice.count, nullptr);
        }
        last[slice.sequence] = step;
        turns[slice.sequence] = ++turn;
        ++count[slice.sequence];
      }
      // Turns of those that decode, and their longest wait.
      int fewest = 1000;
      int most = 0;
      for (const DecodeWish& wish : wishes) {
        if (!wish.sequence->is_prefilling()) {
          EXPECT_LE(step - last[wish.sequence], running / std::max<std::size_t>(1, answers) + 1);
          fewest = std::min(fewest, count[wish.sequence]);
          most = std::max(most, count[wish.sequence]);
        }
      }
      EXPECT_LE(most, fewest + 1);
    }
  }
}

}  // namespace
}  // namespace baton::engine
