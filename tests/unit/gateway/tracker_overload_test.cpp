// Three times as many requests as the nodes can answer, in three tiers with a deadline, through the
// whole tracker in virtual time: what is let in is in time, each tier has its share, and the nodes
// stay busy.
#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

using std::chrono::seconds;

constexpr Duration kTarget = seconds(1);
constexpr double kExcess = 3;
constexpr std::array<double, kNumTiers> kSharesUnderLoad{0.65, 0.30, 0.05};

// What became of the requests of one tier.
struct TierOutcome {
  std::vector<Duration> first;  // of those answered
  int refused = 0;              // at once
  int expired = 0;              // after they had waited
  std::size_t answered() const { return first.size(); }
  // REQUIRES: some were answered.
  Duration percentile(double part) {
    const auto at =
        first.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(first.size() - 1));
    std::ranges::nth_element(first, at);
    return *at;
  }
};

class OverloadTest : public TrackerTest {
 protected:
  // About 150 answers a second: decode limits, all places of its batch step together.
  void start_nodes(const TrackerOptions& options) {
    start(options);
    NodeScript prefill;
    prefill.prefill_delay = milliseconds(20);
    prefill.credits = 8;
    add("p0", prefill);
    NodeScript decode;
    decode.max_batch = 64;
    decode.step = milliseconds(35);
    add("d0", decode);
  }

  std::shared_ptr<TimedSink> submit_to(Tier tier) {
    auto sink = std::make_shared<TimedSink>(executor);
    Submission submission{request(++last_id), executor.now(), sink};
    submission.tier = tier;
    tracker->submit(std::move(submission));
    return sink;
  }

  // Answers a second while there is always one that waits.
  double capacity() {
    TrackerOptions options;
    options.queue_limit = 10'000;
    start_nodes(options);
    for (int i = 0; i < 3'000; ++i) {
      submit_to(Tier::Default);
    }
    constexpr int kSeconds = 10;
    pass(2'000);
    const std::uint64_t before = cluster->node("d0").counts().taken;
    pass(kSeconds * 1'000);
    const std::uint64_t taken = cluster->node("d0").counts().taken - before;
    EXPECT_GT(tracker->queued(), 0U);
    TearDown();
    return static_cast<double>(taken) / kSeconds;
  }

  std::array<TierOutcome, kNumTiers> offer(double rate, Duration lasts, std::uint64_t seed) {
    auto random = seeded_random(seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11U) / 9007199254740992.0; };
    std::array<std::vector<std::shared_ptr<TimedSink>>, kNumTiers> sinks;
    const TimePoint end = executor.now() + lasts;
    while (executor.now() < end) {
      const auto tier = random() % kNumTiers;
      sinks[tier].push_back(submit_to(static_cast<Tier>(tier)));
      const std::chrono::duration<double> gap(-std::log(1 - uniform()) / rate);
      executor.advance(std::chrono::duration_cast<Duration>(gap));
    }
    executor.advance(seconds(60));
    std::array<TierOutcome, kNumTiers> outcomes;
    for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
      TierOutcome& outcome = outcomes[tier];
      for (const auto& sink : sinks[tier]) {
        if (!sink->end) {
          ADD_FAILURE() << "a request without an end";
        } else if (!sink->end->error) {
          outcome.first.push_back(*sink->first);
        } else {
          EXPECT_EQ(sink->end->error->status, 429);
          EXPECT_GE(sink->end->error->retry_after_s, 1U);
          EXPECT_FALSE(sink->first) << "refused after a token";
          (sink->ended == Duration{} ? outcome.refused : outcome.expired) += 1;
        }
      }
    }
    return outcomes;
  }

  std::uint64_t last_id = 0;
};

TEST_F(OverloadTest, WhatIsLetInIsInTimeAndEachTierHasItsShare) {
  const double capacity = this->capacity();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    TrackerOptions options;
    for (TierSection& tier : options.tiers) {
      tier.ttft_target = std::chrono::duration_cast<milliseconds>(kTarget);
    }
    start_nodes(options);
    constexpr int kSeconds = 60;
    auto outcomes = offer(capacity * kExcess, seconds(kSeconds), seed);
    std::size_t answered = 0;
    std::size_t in_time = 0;
    int expired = 0;
    int refused = 0;
    for (const TierOutcome& tier : outcomes) {
      answered += tier.answered();
      in_time += static_cast<std::size_t>(
          std::ranges::count_if(tier.first, [](Duration first) { return first <= kTarget; }));
      expired += tier.expired;
      refused += tier.refused;
    }
    for (std::size_t i = 0; i < kNumTiers; ++i) {
      TierOutcome& tier = outcomes[i];
      ASSERT_GT(tier.answered(), 100U);
      EXPECT_LE(tier.percentile(0.99), kTarget) << kTierNames[i] << " seed " << seed;
      EXPECT_NEAR(static_cast<double>(tier.answered()) / static_cast<double>(answered),
                  kSharesUnderLoad[i],
                  0.01)
          << kTierNames[i] << " seed " << seed;
    }
    // Let in and then given up is the exception: those of the first moments, when no rate is known.
    EXPECT_LE(expired, 0.01 * static_cast<double>(answered)) << "seed " << seed;
    EXPECT_LE(expired, 0.01 * refused) << "seed " << seed;
    EXPECT_GE(static_cast<double>(in_time), 0.95 * capacity * kSeconds) << "seed " << seed;
    expect_quiet();
    TearDown();
  }
}

}  // namespace
}  // namespace baton::gateway
