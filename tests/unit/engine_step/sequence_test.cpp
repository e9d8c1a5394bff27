#include "engine/step/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "engine/kv/kv_memory.h"
#include "engine/step/planner.h"
#include "tests/support/scripted_runner.h"

namespace baton::engine {
namespace {

GenerateRequest request_of(std::size_t prompt, std::uint32_t max_tokens) {
  GenerateRequest request;
  for (std::size_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(i * 7 % 100));
  }
  request.max_tokens = max_tokens;
  return request;
}

TEST(CheckSize, CountsWhatARequestTakes) {
  auto size = check_size(request_of(10, 5), 100, 100);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->context, 10U);
  EXPECT_EQ(size->max_output, 5U);
  EXPECT_EQ(size->max_stored, 14U);
  auto capped = check_size(request_of(98, 50), 100, 100);
  ASSERT_TRUE(capped);
  EXPECT_EQ(capped->max_output, 2U);
}

TEST(CheckSize, RefusesWhatCannotRun) {
  auto long_prompt = check_size(request_of(100, 5), 100, 100);
  ASSERT_FALSE(long_prompt);
  EXPECT_EQ(long_prompt.error().code, ErrorCode::ContextTooLong);
  EXPECT_FALSE(check_size(request_of(0, 5), 100, 100));
  EXPECT_FALSE(check_size(request_of(10, 0), 100, 100));
  EXPECT_FALSE(check_size(request_of(10, 5), 100, 50));
  GenerateRequest resumed = request_of(10, 2);
  resumed.output = {1, 2};
  EXPECT_FALSE(check_size(resumed, 100, 100));
}

TEST(Sequence, TargetsAreTheTokensBehindThoseOfTheSlice) {
  GenerateRequest request = request_of(6, 4);
  request.prompt_logprobs = 2;
  const auto size = *check_size(request, 100, 100);
  Sequence sequence(request, size, {}, 0);
  const SequenceSlice first = sequence.slice(4);
  EXPECT_TRUE(std::ranges::equal(first.targets, std::span(request.prompt).subspan(1, 4)));
  EXPECT_EQ(first.target_alternatives, 2U);
  sequence.advance(4, nullptr);
  const SequenceSlice last = sequence.slice(2);
  EXPECT_TRUE(std::ranges::equal(last.targets, std::span(request.prompt).subspan(5)));
  EXPECT_TRUE(last.sample);
  SampledToken next{.token = 6};
  sequence.advance(2, &next);
  EXPECT_TRUE(sequence.slice(1).targets.empty());
  // One that is resumed has given them.
  request.output = {1};
  Sequence resumed(request, *check_size(request, 100, 100), {}, 0);
  EXPECT_TRUE(resumed.slice(3).targets.empty());
}

TEST(Sequence, StopsAtStopTokenAndAtLength) {
  GenerateRequest request = request_of(4, 3);
  request.stop_tokens = {42};
  const auto size = *check_size(request, 100, 100);
  Sequence sequence(request, size, {}, 4);
  EXPECT_EQ(sequence.accept(5), FinishReason::None);
  SampledToken next{.token = 6};
  EXPECT_EQ(sequence.advance(1, &next), FinishReason::None);
  Sequence other(request, size, {}, 4);
  EXPECT_EQ(other.accept(42), FinishReason::Stop);
  next.token = 7;
  EXPECT_EQ(sequence.advance(1, &next), FinishReason::Length);
}

TEST(Sequence, StopTokensAreBarredBeforeMinTokens) {
  GenerateRequest request = request_of(4, 8);
  request.stop_tokens = {42};
  request.min_tokens = 1;
  Sequence sequence(request, *check_size(request, 100, 100), {}, 0);
  EXPECT_EQ(sequence.slice(4).barred.size(), 1U);
  EXPECT_TRUE(sequence.slice(4).sample);
  EXPECT_FALSE(sequence.slice(3).sample);
  const SampledToken sampled{.token = 3};
  sequence.advance(4, &sampled);
  EXPECT_TRUE(sequence.slice(1).barred.empty());
}

std::vector<SampledToken> said(std::initializer_list<TokenId> tokens) {
  std::vector<SampledToken> out;
  for (const TokenId token : tokens) {
    out.push_back({.token = token});
  }
  return out;
}

TEST(Sequence, TakesRightDraftsAndTheTokenBehindThem) {
  GenerateRequest request = request_of(4, 10);
  request.stop_tokens = {42};
  Sequence sequence(request, *check_size(request, 100, 100), {}, 4);
  EXPECT_EQ(sequence.max_drafts(), 0U);  // nothing is pending
  sequence.accept(5);
  EXPECT_EQ(sequence.max_drafts(), 8U);
  const std::vector<TokenId> drafts{6, 7, 9};
  const SequenceSlice slice = sequence.slice(1, drafts);
  EXPECT_EQ(slice.num_rows(), 4U);
  EXPECT_EQ(slice.first_position, 4U);
  EXPECT_TRUE(slice.sample);
  const auto step = sequence.advance_all(1, said({6, 7, 8}));  // two right ones
  EXPECT_EQ(step.finish, FinishReason::None);
  EXPECT_EQ(step.taken, 3U);
  EXPECT_EQ(sequence.computed(), 7U);
  EXPECT_EQ(sequence.num_pending(), 1U);
  EXPECT_EQ(sequence.tokens().back(), 8);
  EXPECT_EQ(sequence.max_drafts(), 5U);
  // A stop token ends it; what was computed behind it is nobody's.
  const auto last = sequence.advance_all(1, said({1, 42, 3, 4}));
  EXPECT_EQ(last.finish, FinishReason::Stop);
  EXPECT_EQ(last.taken, 2U);
  EXPECT_EQ(sequence.num_output(), 6U);
  EXPECT_EQ(sequence.computed(), 9U);
}

TEST(Sequence, DraftsNeverReachPastItsEnd) {
  const GenerateRequest request = request_of(4, 4);
  Sequence sequence(request, *check_size(request, 100, 100), {}, 4);
  sequence.accept(5);
  ASSERT_EQ(sequence.max_drafts(), 2U);
  const auto step = sequence.advance_all(1, said({6, 7, 8}));
  EXPECT_EQ(step.finish, FinishReason::Length);
  EXPECT_EQ(step.taken, 3U);
  EXPECT_LE(sequence.computed(), sequence.size().max_stored);
  Sequence close(request, *check_size(request, 100, 100), {}, 4);
  close.accept(5);
  close.advance_all(1, said({6, 7}));
  EXPECT_EQ(close.max_drafts(), 0U);
}

TEST(Sequence, BarredTokensHoldForAWholeSlice) {
  GenerateRequest request = request_of(4, 10);
  request.stop_tokens = {42};
  request.min_tokens = 4;
  Sequence sequence(request, *check_size(request, 100, 100), {}, 4);
  sequence.accept(5);
  EXPECT_EQ(sequence.max_drafts(), 2U);  // the fourth token is the last that may not stop
  sequence.advance_all(1, said({6, 7, 8}));
  EXPECT_TRUE(sequence.slice(1).barred.empty());
  EXPECT_EQ(sequence.max_drafts(), 5U);
}

TEST(Sequence, NoDraftsWhileItPrefills) {
  const GenerateRequest request = request_of(9, 10);
  Sequence sequence(request, *check_size(request, 100, 100), {}, 0);
  EXPECT_EQ(sequence.max_drafts(), 0U);
  EXPECT_EQ(sequence.advance_all(8, {}).taken, 0U);
  EXPECT_EQ(sequence.max_drafts(), 0U);  // the last prompt token is alone, and still of the prompt
  EXPECT_EQ(sequence.advance_all(1, said({3})).taken, 1U);
  EXPECT_EQ(sequence.max_drafts(), 8U);
}

// Chunks, cached prefixes and replayed output must not change a token.
TEST(Sequence, SameTokensHoweverItIsCut) {
  testing::ScriptedOptions options;
  const GenerateRequest request = request_of(70, 20);
  const std::vector<TokenId> expected = testing::scripted_output(options, request);
  ASSERT_EQ(expected.size(), 20U);
  testing::ScriptedRunner runner(options);
  auto memory = KvMemory::create(runner.info().layout, {.num_blocks = 16});
  ASSERT_TRUE(memory);
  KvMemory& kv = **memory;
  for (const std::uint32_t chunk : {1U, 5U, 16U, 70U}) {
    for (const std::uint32_t replayed : {0U, 7U}) {
      GenerateRequest resumed = request;
      resumed.output.assign(expected.begin(), expected.begin() + replayed);
      const auto size = *check_size(resumed, options.context_length, options.vocab_size);
      std::vector<TokenId> context = resumed.prompt;
      context.insert(context.end(), resumed.output.begin(), resumed.output.end());
      PrefixRef prefix = kv.index().find(context, (size.context - 1) / options.block_tokens);
      kv.index().count_use(prefix, context.size());
      const std::uint32_t cached = prefix.num_blocks() * options.block_tokens;
      const std::uint32_t needed = kv.layout().blocks_for(size.max_stored) - prefix.num_blocks();
      Sequence sequence(resumed, size, BlockTable(std::move(prefix), *kv.acquire(needed)), cached);
      Sequence* all[] = {&sequence};
      FinishReason finish = FinishReason::None;
      while (finish == FinishReason::None) {
        const auto slices = sequence.is_prefilling()
                                ? plan_prefill(all, {.chunk_tokens = chunk, .step_tokens = 64})
                                : plan_decode(std::array{DecodeWish{&sequence}}, {}, {});
        ASSERT_EQ(slices.size(), 1U);
        const auto result = runner.run(to_step_plan(slices), kv.arena(), nullptr);
        const auto& sampled = result.sampled[0];
        finish = sequence.advance(slices[0].count, sampled ? &*sampled : nullptr);
        sequence.table().seal(
            kv.index(), options.block_tokens, sequence.tokens(), sequence.computed());
      }
      EXPECT_EQ(finish, FinishReason::Length);
      EXPECT_TRUE(std::ranges::equal(sequence.output(), expected)) << "chunk " << chunk;
      kv.check_invariants();
    }
  }
  EXPECT_GT(kv.index().stats().hit_tokens, 0U);
}

}  // namespace
}  // namespace baton::engine
