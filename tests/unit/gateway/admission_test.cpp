// The queue by tiers, on a manual clock: bounds, places, shares of the work at overload, and that
// nobody starves.
#include "gateway/requests/admission.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <unordered_map>

#include "common/base/random.h"
#include "common/exec/manual_executor.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Tier kTiers[] = {Tier::Priority, Tier::Default, Tier::Flex};

TierPolicies policies(double priority, double standard, double flex) {
  TierPolicies tiers;
  const double shares[] = {priority, standard, flex};
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    tiers[i] = TierPolicy{
        .share = shares[i], .starve_after = seconds(3600), .limit = 1000, .timeout = seconds(60)};
  }
  return tiers;
}

std::array<std::uint64_t, kNumTiers> tokens_of(const Backlog& backlog) {
  return {backlog[0].tokens, backlog[1].tokens, backlog[2].tokens};
}

// One server that begins a waiting request whenever it is free, and clients that keep `depth`
// requests of each of their tiers waiting.
class Server {
 public:
  explicit Server(TierPolicies tiers) : queue(tiers) {}

  void enter(Tier tier, std::uint64_t tokens) {
    const RequestId id{++last_id};
    const auto ticket = queue.enter("m", id, tier, tokens, executor.now(), executor.now());
    ASSERT_TRUE(ticket);
    tickets.emplace(id, *ticket);
  }
  void keep_waiting(Tier tier, std::size_t depth, std::uint64_t tokens) {
    while (queue.size(tier) < depth) {
      enter(tier, tokens);
    }
  }
  // Begins the next request; the clock moves on by the time it takes.
  Tier begin(Duration takes) {
    AdmissionQueue::Scan scan;
    const auto id = queue.next("m", executor.now(), scan);
    EXPECT_TRUE(id);
    AdmissionQueue::Ticket& ticket = tickets.at(*id);
    EXPECT_LT(last_begun[ticket.tier], ticket.place.number) << "a younger one was first";
    last_begun[ticket.tier] = ticket.place.number;
    queue.take("m", ticket, executor.now());
    work[ticket.tier] += static_cast<double>(ticket.tokens);
    all_work += static_cast<double>(ticket.tokens);
    executor.advance(takes);
    return ticket.tier;
  }
  double part(Tier tier) { return work[tier] / all_work; }

  ManualExecutor executor;
  AdmissionQueue queue;
  std::unordered_map<RequestId, AdmissionQueue::Ticket> tickets;
  std::map<Tier, std::uint64_t> last_begun;
  std::map<Tier, double> work;
  double all_work = 0;
  std::uint64_t last_id = 0;
};

TEST(Admission, EachTierIsBoundedAndPlacesAreKept) {
  TierPolicies tiers = policies(0.5, 0.3, 0.05);
  tiers[1].limit = 2;
  AdmissionQueue queue(tiers);
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  auto first = queue.enter("m", RequestId{1}, Tier::Default, 10, now, now);
  auto second = queue.enter("m", RequestId{2}, Tier::Default, 20, now, now);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(queue.enter("other", RequestId{3}, Tier::Default, 10, now, now));
  EXPECT_TRUE(queue.enter("m", RequestId{4}, Tier::Flex, 5, now, now));
  EXPECT_EQ(tokens_of(queue.backlog("m", now)), (std::array<std::uint64_t, kNumTiers>{0, 30, 5}));
  AdmissionQueue::Scan scan;
  EXPECT_EQ(queue.next("m", now, scan), RequestId{1});
  EXPECT_EQ(queue.next("m", now, scan), RequestId{2});
  EXPECT_EQ(queue.next("m", now, scan), RequestId{4});
  EXPECT_EQ(queue.next("m", now, scan), std::nullopt);
  queue.take("m", *first, now);
  scan = {};
  EXPECT_EQ(queue.next("m", now, scan), RequestId{2});
  queue.reenter("m", RequestId{1}, *first, now);
  scan = {};
  EXPECT_EQ(queue.next("m", now, scan), RequestId{1});
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.expired(now + seconds(60)).size(), 3U);
  EXPECT_TRUE(queue.expired(now).empty());
  queue.leave("m", *first);
  queue.leave("m", *first);
  queue.leave("m", *second);
  EXPECT_EQ(queue.size(Tier::Default), 0U);
  EXPECT_EQ(queue.models(), std::vector<std::string>{"m"});
}

TEST(Admission, EarliestDeadlineIsFirst) {
  TierPolicies tiers = policies(0, 0, 0);
  tiers[0].ttft_target = milliseconds(500);
  AdmissionQueue queue(tiers);
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  queue.enter("m", RequestId{1}, Tier::Priority, 1, now, now);
  // Received before the first, and tokenized later.
  queue.enter("m", RequestId{2}, Tier::Priority, 1, now - milliseconds(30), now);
  AdmissionQueue::Scan scan;
  EXPECT_EQ(queue.next("m", now, scan), RequestId{2});
  EXPECT_EQ(queue.next("m", now, scan), RequestId{1});
}

TEST(Admission, NobodyWaitsLongerThanItMay) {
  AdmissionQueue queue(policies(0, 0, 0));
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  queue.enter("m", RequestId{1}, Tier::Default, 1, now, now, now + seconds(2));
  queue.enter("m", RequestId{2}, Tier::Default, 1, now, now, now + seconds(90));
  EXPECT_TRUE(queue.expired(now + milliseconds(1999)).empty());
  EXPECT_EQ(queue.expired(now + seconds(2)), std::vector<RequestId>{RequestId{1}});
  EXPECT_EQ(queue.expired(now + seconds(60)).size(), 2U) << "its tier's timeout holds, too";
}

TEST(Admission, BacklogTellsWhatWaitsAndHowItStands) {
  AdmissionQueue queue(policies(0.5, 0.3, 0.1));
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  EXPECT_EQ(queue.backlog("m", now)[0].requests, 0U);
  auto first = queue.enter("m", RequestId{1}, Tier::Flex, 100, now, now);
  queue.enter("m", RequestId{2}, Tier::Flex, 50, now, now);
  queue.enter("m", RequestId{3}, Tier::Default, 70, now, now);
  queue.take("m", *first, now + seconds(1));
  const Backlog backlog = queue.backlog("m", now + seconds(3));
  EXPECT_EQ(backlog[2].tokens, 50U);
  EXPECT_EQ(backlog[2].requests, 1U);
  EXPECT_EQ(backlog[2].since_begun, seconds(2));
  EXPECT_DOUBLE_EQ(backlog[1].owed, 30) << "of the work that was begun";
  EXPECT_EQ(backlog[1].since_begun, seconds(3));
  EXPECT_EQ(backlog[0].since_begun, Duration{});
}

TEST(Admission, SharesAreKeptAtOverload) {
  Server server(policies(0.5, 0.3, 0.05));
  for (int i = 0; i < 20'000; ++i) {
    server.keep_waiting(Tier::Priority, 20, 100);
    server.keep_waiting(Tier::Default, 50, 100);
    server.keep_waiting(Tier::Flex, 90, 100);
    server.begin(milliseconds(10));
  }
  // What nobody's share is goes to the highest.
  EXPECT_NEAR(server.part(Tier::Priority), 0.65, 0.01);
  EXPECT_NEAR(server.part(Tier::Default), 0.30, 0.01);
  EXPECT_NEAR(server.part(Tier::Flex), 0.05, 0.01);
}

TEST(Admission, SharesAreOfWorkNotOfRequests) {
  Server server(policies(0.3, 0.3, 0.3));
  auto random = seeded_random(7);
  for (int i = 0; i < 50'000; ++i) {
    server.keep_waiting(Tier::Priority, 5, 10 + random() % 50);
    server.keep_waiting(Tier::Default, 5, 1 + random() % 2000);
    server.keep_waiting(Tier::Flex, 5, 5000);
    server.begin(milliseconds(1));
  }
  EXPECT_NEAR(server.part(Tier::Priority), 0.4, 0.02);
  EXPECT_NEAR(server.part(Tier::Default), 0.3, 0.02);
  EXPECT_NEAR(server.part(Tier::Flex), 0.3, 0.02);
}

TEST(Admission, WhatATierLeavesGoesToTheOthers) {
  Server server(policies(0.5, 0.3, 0.1));
  for (int i = 0; i < 5000; ++i) {
    server.keep_waiting(Tier::Default, 9, 100);
    server.keep_waiting(Tier::Flex, 9, 100);
    server.begin(milliseconds(10));
  }
  EXPECT_NEAR(server.part(Tier::Default), 0.9, 0.01);
  EXPECT_NEAR(server.part(Tier::Flex), 0.1, 0.01);
}

// A tier that was away for long has saved nothing up, and one whose single client comes back at
// once gets no more than its share.
TEST(Admission, SharesAreNotSavedNorGamed) {
  Server server(policies(0.2, 0.2, 0.2));
  for (int i = 0; i < 5000; ++i) {
    server.keep_waiting(Tier::Priority, 5, 100);
    server.begin(milliseconds(10));
  }
  int flex = 0;
  for (int i = 0; i < 1000; ++i) {
    server.keep_waiting(Tier::Priority, 5, 100);
    server.keep_waiting(Tier::Flex, 1, 100);
    flex += server.begin(milliseconds(10)) == Tier::Flex ? 1 : 0;
  }
  EXPECT_NEAR(flex, 200, 10);
}

TEST(Admission, NobodyStarves) {
  TierPolicies tiers = policies(0, 0, 0);
  tiers[1].starve_after = milliseconds(500);
  tiers[2].starve_after = seconds(2);
  Server server(tiers);
  TimePoint standard = server.executor.now();
  TimePoint flex = standard;
  for (int i = 0; i < 20'000; ++i) {
    for (const Tier tier : kTiers) {
      server.keep_waiting(tier, 10, 100);
    }
    const TimePoint now = server.executor.now();
    const Tier begun = server.begin(milliseconds(10));
    TimePoint& last = begun == Tier::Default ? standard : flex;
    if (begun != Tier::Priority) {
      last = now;
    }
    // The other one may be due at the same moment.
    ASSERT_LE(now - standard, milliseconds(520));
    ASSERT_LE(now - flex, milliseconds(2020));
  }
  EXPECT_GT(server.part(Tier::Priority), 0.97);
}

// Where one request takes longer than every bound, the tiers take turns.
TEST(Admission, NobodyStarvesOnASlowCluster) {
  TierPolicies tiers = policies(0.9, 0.1, 0);
  for (TierPolicy& tier : tiers) {
    tier.starve_after = milliseconds(100);
  }
  Server server(tiers);
  for (int i = 0; i < 300; ++i) {
    for (const Tier tier : kTiers) {
      server.keep_waiting(tier, 3, 100);
    }
    server.begin(seconds(10));
  }
  for (const Tier tier : kTiers) {
    EXPECT_NEAR(server.part(tier), 1.0 / 3, 0.02);
  }
}

// A node that refuses costs a tier neither its place nor its share.
TEST(Admission, WhatIsGivenBackWasNotPaid) {
  Server server(policies(0.1, 0.3, 0.1));
  auto random = seeded_random(3);
  for (int i = 0; i < 20'000; ++i) {
    for (const Tier tier : kTiers) {
      server.keep_waiting(tier, tier == Tier::Default ? 1 : 10, 100);
    }
    if (random() % 2 == 0) {
      AdmissionQueue::Scan scan;
      const auto id = server.queue.next("m", server.executor.now(), scan);
      AdmissionQueue::Ticket& ticket = server.tickets.at(*id);
      server.queue.take("m", ticket, server.executor.now());
      server.executor.advance(milliseconds(3));
      server.queue.reenter("m", *id, ticket, server.executor.now());
    }
    server.begin(milliseconds(10));
  }
  EXPECT_NEAR(server.part(Tier::Default), 0.3, 0.01);
  EXPECT_NEAR(server.part(Tier::Flex), 0.1, 0.01);
}

TEST(Admission, CountsStayTrueWhateverComes) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    auto random = seeded_random(seed);
    AdmissionQueue queue(policies(0.2, 0.2, 0.2));
    TimePoint now = TimePoint{} + std::chrono::hours(1);
    std::map<std::uint64_t, std::pair<std::string, AdmissionQueue::Ticket>> waiting;
    std::map<std::uint64_t, std::pair<std::string, AdmissionQueue::Ticket>> begun;
    for (std::uint64_t i = 1; i <= 2000; ++i) {
      now += milliseconds(random() % 50);
      const std::string model = random() % 2 == 0 ? "a" : "b";
      const auto kind = random() % 4;
      if (kind == 0 || waiting.empty()) {
        const auto ticket =
            queue.enter(model, RequestId{i}, kTiers[random() % 3], random() % 500, now, now);
        ASSERT_TRUE(ticket);
        waiting.emplace(i, std::pair(model, *ticket));
      } else if (kind == 1) {
        AdmissionQueue::Scan scan;
        if (const auto id = queue.next(model, now, scan)) {
          auto node = waiting.extract(id->value);
          ASSERT_FALSE(node.empty());
          queue.take(model, node.mapped().second, now);
          begun.insert(std::move(node));
        }
      } else if (kind == 2 && !begun.empty()) {
        auto node = begun.extract(begun.begin());
        queue.reenter(node.mapped().first, RequestId{node.key()}, node.mapped().second, now);
        waiting.insert(std::move(node));
      } else {
        const auto node = waiting.extract(waiting.begin());
        queue.leave(node.mapped().first, node.mapped().second);
      }
      ASSERT_EQ(queue.size(), waiting.size()) << "seed " << seed;
    }
    std::array<std::uint64_t, kNumTiers> tokens{};
    for (const auto& [id, entry] : waiting) {
      tokens[static_cast<std::size_t>(entry.second.tier)] += entry.second.tokens;
    }
    std::array<std::uint64_t, kNumTiers> told = tokens_of(queue.backlog("a", now));
    for (std::size_t i = 0; i < kNumTiers; ++i) {
      told[i] += queue.backlog("b", now)[i].tokens;
    }
    EXPECT_EQ(told, tokens) << "seed " << seed;
  }
}

TEST(Admission, PoliciesFillInWhatATierLeavesOut) {
  std::array<TierSection, kNumTiers> sections = GatewaySection().tiers;
  sections[2].queue_limit = 7;
  sections[0].queue_timeout = milliseconds(900);
  const TierPolicies tiers = tier_policies(sections, 256, seconds(60));
  EXPECT_EQ(tiers[0].limit, 256U);
  EXPECT_EQ(tiers[2].limit, 7U);
  EXPECT_EQ(tiers[0].timeout, milliseconds(900));
  EXPECT_EQ(tiers[1].timeout, seconds(60));
  EXPECT_DOUBLE_EQ(tiers[0].share, 0.5);
}

}  // namespace
}  // namespace baton::gateway
