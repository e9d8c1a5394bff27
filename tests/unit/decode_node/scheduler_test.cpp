// Continuous batching without connections: sequences that prefill here, one manual executor for
// strand and engine thread.
#include "decode_node/scheduler.h"

#include <gtest/gtest.h>

#include "common/exec/manual_executor.h"
#include "common/wire/convert.h"
#include "tests/support/scripted_runner.h"

namespace baton::decode_node {
namespace {

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    kv_ = std::move(*engine::KvMemory::create(runner_.info().layout, {.num_blocks = 64}));
    steps_ = std::make_unique<node::StepEngine>(executor_, executor_, runner_, kv_->arena());
    make_scheduler({});
  }

  void make_scheduler(engine::DraftLimits drafts,
                      engine::DecodeLimits limits = {.max_batch = 4, .prefill_tokens = 32}) {
    scheduler_ = std::make_unique<Scheduler>(
        executor_,
        *steps_,
        *kv_,
        stream_,
        probe_,
        Scheduler::Options{.limits = limits, .drafts = drafts, .node = "d0"},
        [this] { ++ended_; });
  }

  GenerateRequest request(std::uint64_t id, std::size_t prompt, std::uint32_t max_tokens) {
    GenerateRequest request;
    request.id = RequestId{id};
    request.prompt.assign(prompt, static_cast<TokenId>(id));
    request.max_tokens = max_tokens;
    return request;
  }

  // With blocks for the context and `output` tokens; without `output` for all it may have.
  void add(const GenerateRequest& request,
           node::ClientId client = node::ClientId{1},
           std::optional<std::uint32_t> output = std::nullopt) {
    const auto size = *engine::check_size(request, 4096, 1000);
    const auto stored = output ? size.context + *output : size.max_stored;
    auto blocks = *kv_->acquire(kv_->layout().blocks_for(stored));
    Scheduler::Arrival arrival;
    arrival.client = client;
    arrival.sequence = std::make_unique<engine::Sequence>(
        request, size, engine::BlockTable({}, std::move(blocks)), 0);
    scheduler_->add(std::move(arrival));
  }

  std::vector<TokenId> output(std::uint64_t id) {
    std::vector<TokenId> tokens;
    for (const auto& [client, event] : events_) {
      if (event.request == RequestId{id}) {
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      }
    }
    return tokens;
  }

  testing::ScriptedOptions model_;
  ManualExecutor executor_;
  testing::ScriptedRunner runner_{model_};
  std::unique_ptr<engine::KvMemory> kv_;
  std::vector<std::pair<node::ClientId, TokenEvent>> events_;
  int frames_ = 0;
  int ended_ = 0;
  node::TokenStream stream_{[this](node::ClientId client, const wire::Frame& frame) {
    ++frames_;
    for (const auto& event : frame.tokens().events()) {
      events_.emplace_back(client, *from_wire(event));
    }
  }};
  Metrics metrics_;
  Probe probe_{metrics_};
  std::unique_ptr<node::StepEngine> steps_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, SequencesJoinAndLeaveBetweenSteps) {
  const auto a = request(1, 20, 12);
  const auto b = request(2, 30, 4);
  add(a);
  for (int i = 0; i < 6; ++i) {
    executor_.run_one();
  }
  add(b);
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, a));
  EXPECT_EQ(output(2), testing::scripted_output(model_, b));
  EXPECT_EQ(scheduler_->num_running(), 0U);
  EXPECT_EQ(runner_.max_slices(), 2U);
  EXPECT_EQ(ended_, 2);
  kv_->check_invariants();
}

TEST_F(SchedulerTest, DeadlineHandsBackASequenceThatWaits) {
  auto granted = *kv_->acquire(62);
  for (engine::BlockLease& lease : granted) {
    lease.mark(engine::BlockUse::Granted);
  }
  auto a = request(1, 20, 100);
  a.deadline = std::chrono::milliseconds(700);
  add(a, node::ClientId{1}, 12);
  executor_.advance(std::chrono::milliseconds(699));
  EXPECT_EQ(scheduler_->num_running(), 1U);
  executor_.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(scheduler_->num_running(), 0U);
  EXPECT_EQ(events_.back().second.error->code, ErrorCode::Timeout);
}

TEST_F(SchedulerTest, OneFrameAStepForEachGateway) {
  add(request(1, 10, 5), node::ClientId{1});
  add(request(2, 10, 5), node::ClientId{1});
  add(request(3, 10, 5), node::ClientId{2});
  executor_.run_until_idle();
  EXPECT_EQ(events_.size(), 15U);
  EXPECT_LE(frames_, 13);  // the first step carries one sequence, later ones all
  for (const auto& [client, event] : events_) {
    EXPECT_EQ(client.value, event.request.value == 3 ? 2U : 1U);
  }
}

TEST_F(SchedulerTest, CancelInAStepTakesEffectAtItsEnd) {
  add(request(1, 20, 500));
  executor_.run_one();  // the step is done on the engine thread, its result is on its way
  EXPECT_TRUE(scheduler_->cancel(node::ClientId{1}, RequestId{1}, Attempt{}));
  EXPECT_EQ(scheduler_->num_running(), 1U);
  EXPECT_FALSE(scheduler_->cancel(node::ClientId{1}, RequestId{9}, Attempt{}));
  executor_.run_until_idle();
  EXPECT_EQ(scheduler_->num_running(), 0U);
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
}

TEST_F(SchedulerTest, HandedBackAfterItsStepWithItsTokens) {
  const auto a = request(1, 20, 500);
  add(a);
  for (int i = 0; i < 9; ++i) {
    executor_.run_one();
  }
  ASSERT_EQ(scheduler_->num_running(), 1U);
  const std::size_t told = events_.size();
  scheduler_->hand_back({ErrorCode::Draining, "going"});
  EXPECT_EQ(events_.size(), told);  // the step is in work
  executor_.run_until_idle();
  ASSERT_EQ(events_.size(), told + 2);  // its token, then the error
  EXPECT_EQ(events_.back().second.error->code, ErrorCode::Draining);
  auto tokens = testing::scripted_output(model_, a);
  tokens.resize(output(1).size());
  EXPECT_EQ(output(1), tokens);
  EXPECT_EQ(runner_.num_tokens(), 20 + told);
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
  EXPECT_EQ(ended_, 1);
}

TEST_F(SchedulerTest, SequencesGrowIntoFreeBlocks) {
  const auto a = request(1, 20, 300);
  add(a, node::ClientId{1}, 8);
  EXPECT_EQ(scheduler_->num_growing(), 1U);
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, a));
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
  kv_->check_invariants();
}

TEST_F(SchedulerTest, YoungestGrowingSequenceIsPreempted) {
  // Of 64 blocks of 16 tokens, each would take 26 in the end; the third has all from the start.
  const auto oldest = request(1, 20, 390);
  const auto middle = request(2, 20, 390);
  const auto whole = request(3, 20, 390);
  const auto youngest = request(4, 20, 390);
  add(oldest, node::ClientId{1}, 8);
  add(middle, node::ClientId{1}, 8);
  add(whole, node::ClientId{1});
  add(youngest, node::ClientId{1}, 8);
  executor_.run_until_idle();
  EXPECT_EQ(scheduler_->num_running(), 0U);
  std::vector<std::uint64_t> preempted;
  for (const auto& [client, event] : events_) {
    if (event.error) {
      EXPECT_EQ(event.error->code, ErrorCode::Preempted);
      preempted.push_back(event.request.value);
    }
  }
  EXPECT_EQ(preempted, (std::vector<std::uint64_t>{4, 2}));
  EXPECT_EQ(output(1), testing::scripted_output(model_, oldest));
  EXPECT_EQ(output(3), testing::scripted_output(model_, whole));
  for (const auto& cut : {middle, youngest}) {  // what was said of them is right as far as it goes
    auto tokens = testing::scripted_output(model_, cut);
    ASSERT_LT(output(cut.id.value).size(), tokens.size());
    tokens.resize(output(cut.id.value).size());
    EXPECT_EQ(output(cut.id.value), tokens);
  }
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
  kv_->check_invariants();
}

TEST_F(SchedulerTest, LastSequenceWaitsForGrantsThatHoldTheRest) {
  auto granted = *kv_->acquire(61);
  for (engine::BlockLease& lease : granted) {
    lease.mark(engine::BlockUse::Granted);
  }
  const auto a = request(1, 20, 100);
  add(a, node::ClientId{1}, 12);  // 2 blocks, 8 in the end; one is free
  executor_.run_until_idle();
  EXPECT_EQ(scheduler_->num_running(), 1U);
  EXPECT_FALSE(events_.back().second.error);
  scheduler_->blocks_freed();  // of another kind
  executor_.run_until_idle();
  EXPECT_EQ(scheduler_->num_running(), 1U);
  granted.clear();
  scheduler_->blocks_freed();
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, a));
}

TEST_F(SchedulerTest, EndAllTellsEveryGateway) {
  add(request(1, 20, 300));
  add(request(2, 20, 300));
  scheduler_->end_all({ErrorCode::Unavailable, "closing"});
  executor_.run_until_idle();
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[0].second.finish, FinishReason::Error);
  EXPECT_EQ(scheduler_->num_running(), 0U);
}

class SpeculationTest : public SchedulerTest {
 protected:
  SpeculationTest() {
    model_.habits = 5;
    habitual_ = std::make_unique<testing::ScriptedRunner>(model_);
    steps_ = std::make_unique<node::StepEngine>(executor_, executor_, *habitual_, kv_->arena());
    make_scheduler({.max_tokens = 6, .min_match = 2});
  }

  std::uint64_t drafted() const { return habitual_->num_drafts(); }
  // Of sequences that ended.
  std::uint32_t accepted() const {
    std::uint32_t sum = 0;
    for (const auto& [client, event] : events_) {
      sum += event.figures ? event.figures->accepted_tokens : 0;
    }
    return sum;
  }

  std::unique_ptr<testing::ScriptedRunner> habitual_;
};

TEST_F(SpeculationTest, SameTokensInFewerSteps) {
  auto a = request(1, 20, 120);
  auto b = request(2, 30, 90);
  b.sampling.temperature = 1.0F;
  b.sampling.seed = 9;
  add(a);
  add(b);
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, a));
  EXPECT_EQ(output(2), testing::scripted_output(model_, b));
  EXPECT_GT(accepted(), 60U);
  EXPECT_LT(habitual_->num_steps(), 100U);
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
  kv_->check_invariants();
}

TEST_F(SpeculationTest, EventsOfSeveralTokensAreWhole) {
  auto asked = request(1, 20, 60);
  asked.sampling.num_logprobs = 2;
  add(asked);
  executor_.run_until_idle();
  std::uint32_t next = 0;
  bool several = false;
  for (const auto& [client, event] : events_) {
    EXPECT_EQ(event.index, next);
    next += static_cast<std::uint32_t>(event.tokens.size());
    several = several || event.tokens.size() > 1;
    ASSERT_EQ(event.logprobs.size(), event.tokens.size());
    ASSERT_EQ(event.top_logprobs.size(), event.tokens.size());
    for (std::size_t i = 0; i < event.tokens.size(); ++i) {
      EXPECT_EQ(event.logprobs[i].token, event.tokens[i]);
    }
  }
  EXPECT_TRUE(several);
  EXPECT_EQ(next, 60U);
}

TEST_F(SpeculationTest, StopTokenAmongTheDraftsEndsTheAnswer) {
  bool among = false;
  for (std::uint64_t id = 1; id <= 12; ++id) {
    auto stopped = request(id, 20, 200);
    stopped.stop_tokens = {static_cast<TokenId>(testing::scripted_output(model_, stopped)[40])};
    stopped.min_tokens = 30;
    const auto expected = testing::scripted_output(model_, stopped);
    add(stopped);
    executor_.run_until_idle();
    EXPECT_EQ(output(id), expected);
    EXPECT_EQ(events_.back().second.finish, FinishReason::Stop);
    among = among || events_.back().second.tokens.size() > 1;
  }
  EXPECT_TRUE(among);
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
}

TEST_F(SpeculationTest, CancelAndHandBackInADraftedStep) {
  const auto a = request(1, 20, 400);
  add(a);
  while (drafted() == 0 || output(1).size() < 30) {
    ASSERT_TRUE(executor_.run_one());
  }
  scheduler_->hand_back({ErrorCode::Draining, "going"});
  executor_.run_until_idle();
  auto tokens = testing::scripted_output(model_, a);
  ASSERT_GE(output(1).size(), 30U);
  tokens.resize(output(1).size());
  EXPECT_EQ(output(1), tokens);
  add(request(2, 20, 400));
  while (output(2).size() < 30) {
    ASSERT_TRUE(executor_.run_one());
  }
  scheduler_->cancel(node::ClientId{1}, RequestId{2}, Attempt{});
  executor_.run_until_idle();
  EXPECT_EQ(scheduler_->num_running(), 0U);
  EXPECT_EQ(kv_->pool().count(engine::BlockUse::InUse), 0U);
}

// Preemption comes where it comes without drafts: they take only what nobody needs.
TEST_F(SpeculationTest, DraftsPreemptNobody) {
  const auto oldest = request(1, 20, 390);
  const auto middle = request(2, 20, 390);
  const auto youngest = request(3, 20, 390);
  for (const auto* each : {&oldest, &middle, &youngest}) {
    add(*each, node::ClientId{1}, 8);
  }
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, oldest));
  EXPECT_EQ(output(2), testing::scripted_output(model_, middle));
  // 64 blocks hold two of them whole and 12 blocks of the third, when it is alone in growing.
  EXPECT_GT(output(3).size(), 64U);
  auto tokens = testing::scripted_output(model_, youngest);
  tokens.resize(output(3).size());
  EXPECT_EQ(output(3), tokens);
  EXPECT_GT(drafted(), 100U);
  kv_->check_invariants();
}

TEST_F(SpeculationTest, WithoutFreeBlocksDraftsEndWithTheBlock) {
  const auto a = request(1, 20, 200);
  add(a, node::ClientId{1}, 4);
  auto rest = *kv_->acquire(61);  // one is left, and then none: it waits for each
  for (engine::BlockLease& lease : rest) {
    lease.mark(engine::BlockUse::Granted);
  }
  while (!rest.empty()) {
    executor_.run_until_idle();
    rest.pop_back();
    scheduler_->blocks_freed();
  }
  executor_.run_until_idle();
  EXPECT_EQ(output(1), testing::scripted_output(model_, a));
  EXPECT_GT(accepted(), 20U);
}

// An engine thread on which a step takes a millisecond, and one more for each row.
class SlowEngine final : public Executor {
 public:
  explicit SlowEngine(ManualExecutor& executor) : executor_(executor) {}
  void post(Task task) override { executor_.post(std::move(task)); }
  TimerHandle call_after(Duration delay, Task task) override {
    return executor_.call_after(delay, std::move(task));
  }
  TimePoint now() const override { return executor_.now() + spent_; }
  bool is_current() const override { return executor_.is_current(); }
  void compute(const engine::StepPlan& plan) {
    spent_ += std::chrono::milliseconds(1);
    for (const engine::SequenceSlice& slice : plan.slices) {
      spent_ += std::chrono::milliseconds(slice.num_rows());
    }
  }

 private:
  ManualExecutor& executor_;
  Duration spent_{};
};

TEST_F(SpeculationTest, GuessesMakeNoStepLongerThanTheirLimit) {
  SlowEngine engine(executor_);
  std::size_t most = 0;
  testing::ScriptedOptions slow = model_;
  slow.check_plan = [&](const engine::StepPlan& plan) {
    engine.compute(plan);
    most = std::max<std::size_t>(most, plan.slices.front().num_rows());
  };
  testing::ScriptedRunner runner(slow);
  steps_ = std::make_unique<node::StepEngine>(executor_, engine, runner, kv_->arena());
  const auto rows_under = [&](double step_seconds, std::uint64_t id) {
    make_scheduler({.max_tokens = 6, .min_match = 2, .step_seconds = step_seconds});
    const auto asked = request(id, 20, 120);
    add(asked);
    while (output(id).size() < 60) {  // what rows cost is known by then
      EXPECT_TRUE(executor_.run_one());
    }
    most = 0;
    executor_.run_until_idle();
    EXPECT_EQ(output(id), testing::scripted_output(model_, asked));
    return most;
  };
  EXPECT_GT(rows_under(0, 1), 3U);
  const std::size_t limited = rows_under(4.5e-3, 2);
  EXPECT_LE(limited, 3U);
  EXPECT_GT(limited, 1U);
  EXPECT_EQ(rows_under(1e-3, 3), 1U);
}

TEST_F(SchedulerTest, TheTargetBoundsStepsAndAllTakeTurns) {
  SlowEngine engine(executor_);
  std::size_t most = 0;
  testing::ScriptedOptions slow = model_;
  slow.check_plan = [&](const engine::StepPlan& plan) {
    engine.compute(plan);
    most = std::max(most, plan.slices.size());
  };
  testing::ScriptedRunner runner(slow);
  steps_ = std::make_unique<node::StepEngine>(executor_, engine, runner, kv_->arena());
  make_scheduler({}, {.max_batch = 16, .prefill_tokens = 32, .step_seconds = 5.5e-3});
  std::vector<GenerateRequest> requests;
  for (std::uint64_t id = 1; id <= 7; ++id) {
    requests.push_back(request(id, 10, 60));
    add(requests.back());
  }
  const auto run_to = [&](std::size_t tokens) {
    while (output(1).size() < tokens) {
      ASSERT_TRUE(executor_.run_one());
    }
  };
  const auto sizes = [&] {
    std::vector<std::size_t> out;
    for (const GenerateRequest& each : requests) {
      out.push_back(output(each.id.value).size());
    }
    return out;
  };
  run_to(20);
  EXPECT_EQ(scheduler_->batch_limit(), 4U);
  most = 0;
  const auto before = sizes();
  run_to(40);
  EXPECT_EQ(most, 4U);
  const auto after = sizes();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(after[i] - before[i]), 20, 2) << i;
  }
  executor_.run_until_idle();
  for (const GenerateRequest& each : requests) {
    EXPECT_EQ(output(each.id.value), testing::scripted_output(model_, each));
  }
  scheduler_.reset();
  steps_.reset();
}

TEST_F(SchedulerTest, LogprobsComeWhenAskedFor) {
  auto asked = request(1, 20, 3);
  asked.sampling.num_logprobs = 2;
  add(asked);
  executor_.run_until_idle();
  ASSERT_EQ(events_.size(), 3U);
  for (const auto& [client, event] : events_) {
    ASSERT_EQ(event.logprobs.size(), 1U);
    ASSERT_EQ(event.top_logprobs.size(), 1U);
    EXPECT_EQ(event.top_logprobs[0].size(), 2U);
  }
}

}  // namespace
}  // namespace baton::decode_node
