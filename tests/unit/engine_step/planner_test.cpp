#include "engine/step/planner.h"

#include <gtest/gtest.h>

#include <memory>

namespace baton::engine {
namespace {

std::unique_ptr<Sequence> sequence_of(std::uint32_t prompt, std::uint32_t computed = 0) {
  GenerateRequest request;
  request.prompt.assign(prompt, 1);
  return std::make_unique<Sequence>(
      request, *check_size(request, 4096, 10), BlockTable{}, computed);
}

std::unique_ptr<Sequence> decoding(std::uint32_t prompt) {
  auto sequence = sequence_of(prompt, prompt);
  sequence->accept(2);
  return sequence;
}

TEST(Planner, PrefillTakesTheOldestFirstUpToTheChunk) {
  auto a = sequence_of(100);
  auto b = sequence_of(30);
  auto c = sequence_of(100);
  Sequence* all[] = {a.get(), b.get(), c.get()};
  const auto slices = plan_prefill(all, {.chunk_tokens = 64, .step_tokens = 100});
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].count, 64U);
  EXPECT_EQ(slices[1].count, 30U);
  EXPECT_EQ(slices[2].count, 6U);
}

TEST(Planner, DecodeComesBeforeLocalPrefill) {
  auto prompt = sequence_of(300);
  auto a = decoding(10);
  auto b = decoding(20);
  Sequence* all[] = {prompt.get(), a.get(), b.get()};
  const auto slices = plan_decode(all, {.max_batch = 8, .prefill_tokens = 128});
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
  Sequence* all[] = {a.get(), b.get(), prompt.get()};
  EXPECT_EQ(plan_decode(all, {.max_batch = 2, .prefill_tokens = 128}).size(), 2U);
}

TEST(Planner, NothingPendingGivesNothing) {
  EXPECT_TRUE(plan_decode({}, {}).empty());
  EXPECT_TRUE(plan_prefill({}, {}).empty());
}

}  // namespace
}  // namespace baton::engine
