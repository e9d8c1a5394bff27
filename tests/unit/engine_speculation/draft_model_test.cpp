// A draft model beside a scripted one: the same tokens whatever it guesses, and its own keys and
// values right after wrong guesses, chunks, eviction and sequences that come back.
#include "engine/speculation/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "tests/support/scripted_runner.h"

namespace baton::engine {
namespace {

class DraftModelTest : public ::testing::Test {
 protected:
  DraftModelTest() { model_.habits = 5; }

  // `seed` as the target's: the draft model is always right.
  void make(std::uint64_t seed, std::uint32_t blocks, std::uint32_t chunk) {
    testing::ScriptedOptions draft = model_;
    draft.weights_seed = seed;
    draft.block_tokens = 32;  // its memory is its own
    target_ = std::make_unique<testing::ScriptedRunner>(model_);
    runner_ = std::make_unique<testing::ScriptedRunner>(draft);
    auto memory =
        KvMemory::create(runner_->info().layout, {.num_blocks = blocks, .prefix_cache = false});
    draft_ = std::make_unique<DraftModel>(*runner_, std::move(*memory), chunk);
    speculative_ = std::make_unique<SpeculativeRunner>(*target_, *draft_);
    kv_ = std::move(*KvMemory::create(target_->info().layout, {.num_blocks = 200}));
  }

  GenerateRequest request(std::uint32_t prompt, std::uint32_t max_tokens, bool seeded) {
    GenerateRequest out;
    for (std::uint32_t i = 0; i < prompt; ++i) {
      out.prompt.push_back(static_cast<TokenId>((i * 7 + prompt) % 100));
    }
    out.max_tokens = max_tokens;
    out.sampling.temperature = seeded ? 1.0F : 0.0F;
    out.sampling.seed = prompt;
    return out;
  }

  // Runs all together to their ends, `wanted` drafts each; gives steps.
  std::size_t run(const std::vector<GenerateRequest>& requests, std::uint32_t wanted) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (const GenerateRequest& each : requests) {
      const auto size = *check_size(each, model_.context_length, model_.vocab_size);
      auto blocks = *kv_->acquire(kv_->layout().blocks_for(size.max_stored));
      sequences.push_back(
          std::make_unique<Sequence>(each, size, BlockTable({}, std::move(blocks)), 0));
    }
    std::vector<bool> is_over(sequences.size(), false);
    std::size_t steps = 0;
    while (std::ranges::count(is_over, false) > 0) {
      std::vector<PlannedSlice> planned;
      std::vector<std::size_t> who;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        if (!is_over[i]) {
          planned.push_back({.sequence = sequences[i].get(),
                             .count = sequences[i]->num_pending(),
                             .wanted_drafts = std::min(wanted, sequences[i]->max_drafts()),
                             .number = i + 1});
          who.push_back(i);
        }
      }
      const StepResult result = speculative_->run(to_step_plan(planned), kv_->arena(), nullptr);
      ++steps;
      for (std::size_t k = 0; k < who.size(); ++k) {
        std::vector<SampledToken> sampled = result.followed[k];
        sampled.insert(sampled.begin(), *result.sampled[k]);
        accepted_ += sampled.size() - 1;
        drafted_ += result.drafted[k];
        is_over[who[k]] =
            sequences[who[k]]->advance_all(planned[k].count, sampled).finish != FinishReason::None;
      }
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(sequences[i]->output(),
                                     testing::scripted_output(model_, requests[i])));
    }
    return steps;
  }

  testing::ScriptedOptions model_;
  std::unique_ptr<testing::ScriptedRunner> target_;
  std::unique_ptr<testing::ScriptedRunner> runner_;
  std::unique_ptr<DraftModel> draft_;
  std::unique_ptr<SpeculativeRunner> speculative_;
  std::unique_ptr<KvMemory> kv_;
  std::size_t accepted_ = 0;
  std::size_t drafted_ = 0;
};

TEST_F(DraftModelTest, AnEqualModelIsAlwaysRight) {
  make(model_.weights_seed, 20, 128);
  const std::size_t steps = run({request(30, 81, false), request(50, 81, true)}, 4);
  EXPECT_EQ(accepted_, drafted_);  // with another block size, chunks and random draws
  EXPECT_EQ(steps, 17U);           // one for the prompts, then five tokens each
}

TEST_F(DraftModelTest, ADifferentOneChangesNoToken) {
  make(99, 20, 64);
  run({request(30, 80, false), request(50, 80, true), request(10, 60, false)}, 3);
  EXPECT_GT(accepted_, 60U);
  EXPECT_LT(accepted_, drafted_);
}

TEST_F(DraftModelTest, LongPromptsAreReadInChunks) {
  make(model_.weights_seed, 40, 16);
  run({request(300, 60, false), request(200, 60, false)}, 4);
  EXPECT_EQ(accepted_, drafted_);
  EXPECT_GT(accepted_, 40U);
}

TEST_F(DraftModelTest, WithoutMemoryForAllSomeGoWithout) {
  make(model_.weights_seed, 6, 64);
  std::vector<GenerateRequest> requests;
  for (std::uint32_t i = 0; i < 5; ++i) {
    requests.push_back(request(20 + i, 40 + 20 * i, i % 2 == 0));
  }
  run(requests, 4);
  EXPECT_EQ(accepted_, drafted_);
  EXPECT_GT(accepted_, 40U);
  EXPECT_LE(draft_->num_sequences(), 5U);
}

TEST_F(DraftModelTest, TheLongestUnusedIsForgotten) {
  make(model_.weights_seed, 6, 64);
  for (int round = 0; round < 4; ++round) {  // other texts under the same numbers, too
    run({request(20 + static_cast<std::uint32_t>(round), 100, false)}, 4);
  }
  EXPECT_EQ(accepted_, drafted_);
  EXPECT_GT(accepted_, 200U);
}

TEST_F(DraftModelTest, NothingIsGuessedPastItsContext) {
  model_.context_length = 64;
  make(model_.weights_seed, 20, 64);
  run({request(30, 100, false)}, 4);
  EXPECT_EQ(accepted_, drafted_);
}

}  // namespace
}  // namespace baton::engine
