// A grammar whose masks are hard: its sequence sits steps out, the others of the batch go on, and
// the tokens are those of an answer whose masks were always there.
#include <gtest/gtest.h>

#include "common/exec/manual_executor.h"
#include "common/wire/convert.h"
#include "decode_node/scheduler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/scripted_runner.h"

namespace baton::decode_node {
namespace {

// Every mask counts as hard, or none; the worker that makes hard ones runs when the test wants.
class LateMaskTest : public ::testing::Test {
 protected:
  LateMaskTest() { model_.vocab_size = testing::kByteVocab; }

  void start(bool is_hard) {
    scheduler_.reset();
    events_.clear();
    runner_ = std::make_unique<testing::ScriptedRunner>(model_);
    kv_ = std::move(*engine::KvMemory::create(runner_->info().layout, {.num_blocks = 64}));
    steps_ = std::make_unique<node::StepEngine>(executor_, executor_, *runner_, kv_->arena());
    grammars_ = std::make_unique<node::Grammars>(
        executor_,
        worker_,
        executor_,
        tokenizer_,
        testing::kByteVocab,
        is_hard ? std::chrono::nanoseconds(-1) : std::chrono::nanoseconds(std::chrono::hours(1)));
    scheduler_ = std::make_unique<Scheduler>(
        executor_,
        *steps_,
        *kv_,
        stream_,
        probe_,
        Scheduler::Options{
            .limits = {.max_batch = 4, .prefill_tokens = 32}, .drafts = {}, .node = "d0"},
        [] {},
        grammars_.get());
  }

  void add(std::uint64_t id, std::uint32_t max_tokens, bool with_grammar) {
    GenerateRequest request;
    request.id = RequestId{id};
    request.prompt.assign(20, static_cast<TokenId>(id));
    request.max_tokens = max_tokens;
    request.sampling.seed = id;
    if (with_grammar) {
      request.grammar = {Grammar::Kind::Regex, "([a-e]{3}-){60}"};
    }
    const auto size = *engine::check_size(request, 4096, testing::kByteVocab);
    auto blocks = *kv_->acquire(kv_->layout().blocks_for(size.max_stored));
    Scheduler::Arrival arrival;
    arrival.client = node::ClientId{1};
    arrival.sequence = std::make_unique<engine::Sequence>(
        request, size, engine::BlockTable({}, std::move(blocks)), 0);
    scheduler_->add(std::move(arrival));
  }

  std::vector<TokenId> output(std::uint64_t id) const {
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events_) {
      EXPECT_FALSE(event.error) << event.error->message;
      if (event.request == RequestId{id}) {
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      }
    }
    return tokens;
  }
  void run_all() {
    for (bool any = true; any;) {
      executor_.run_until_idle();
      any = worker_.run_one();
    }
  }

  const std::string tokenizer_ = testing::byte_tokenizer_spec().serialize();
  testing::ScriptedOptions model_;
  ManualExecutor executor_;
  ManualExecutor worker_;  // compiles, and makes hard masks
  std::unique_ptr<testing::ScriptedRunner> runner_;
  std::unique_ptr<engine::KvMemory> kv_;
  std::vector<TokenEvent> events_;
  node::TokenStream stream_{[this](node::ClientId, const wire::Frame& frame) {
    for (const auto& event : frame.tokens().events()) {
      events_.push_back(*from_wire(event));
    }
  }};
  Metrics metrics_;
  Probe probe_{metrics_};
  std::unique_ptr<node::StepEngine> steps_;
  std::unique_ptr<node::Grammars> grammars_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(LateMaskTest, TheBatchGoesOnAndTheTokensStayTheSame) {
  start(false);
  add(1, 40, true);
  add(2, 60, false);
  run_all();
  const auto with_grammar = output(1);
  const auto without = output(2);
  ASSERT_EQ(with_grammar.size(), 40U);
  ASSERT_EQ(without.size(), 60U);

  start(true);
  add(1, 40, true);
  add(2, 60, false);
  worker_.run_one();  // the grammar is compiled, and the mask of its first token made
  executor_.run_until_idle();
  EXPECT_EQ(output(2), without) << "the other sequence waits for nothing";
  EXPECT_EQ(output(1).size(), 1U) << "its first token, whose mask was there";
  run_all();
  EXPECT_EQ(output(1), with_grammar);
  EXPECT_EQ(scheduler_->num_running(), 0U);
  kv_->check_invariants();
}

TEST_F(LateMaskTest, CancelledWhileItsMaskIsMade) {
  start(true);
  add(1, 40, true);
  worker_.run_one();
  executor_.run_until_idle();
  ASSERT_EQ(output(1).size(), 1U);
  EXPECT_TRUE(scheduler_->cancel(node::ClientId{1}, RequestId{1}, Attempt{}));
  EXPECT_EQ(scheduler_->num_running(), 0U);
  run_all();
  EXPECT_EQ(output(1).size(), 1U);
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
}

}  // namespace
}  // namespace baton::decode_node
