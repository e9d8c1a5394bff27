// Three times as many requests as the nodes can answer: those that are taken keep their time to
// first token, the others are told at once.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/gateway/chat_bodies.h"
#include "bench/gateway/gateway_bench.h"
#include "bench/gateway/scripted_nodes.h"
#include "common/base/random.h"
#include "common/config/gateway_section.h"

namespace baton::bench {
namespace {

// About 150 answers a second: 64 at a time, 40 tokens of 10 ms each.
constexpr NodePace kPace{.prefill_ms = 20, .token_gap_ms = 10, .max_batch = 64, .credits = 8};
constexpr unsigned kTokens = 40;
constexpr std::size_t kBody = 2 * 1024;
constexpr double kExcess = 3;
constexpr double kTargetSeconds = 1;  // time to first token
constexpr double kMeasureSeconds = 5;
constexpr double kRampSeconds = 2;
constexpr double kOverloadPatience = 10;

// Answers a second that came to their end between two moments.
double rate_between(const std::vector<LoadAnswer>& answers,
                    Nanoseconds from,
                    Nanoseconds to,
                    double target_us) {
  const auto count = std::ranges::count_if(answers, [&](const LoadAnswer& answer) {
    return answer.status == 200 && answer.is_whole && answer.last >= from && answer.last < to &&
           (target_us == 0 || answer.first_us() <= target_us);
  });
  return static_cast<double>(count) * 1e9 / static_cast<double>(to - from);
}

}  // namespace

Result<OverloadRow> measure_overload(const GatewayBenchOptions& options) {
  OverloadRow row;
  row.target_us = kTargetSeconds * 1e6;
  const RandomSource random = seeded_random(3);
  std::uint64_t number = 0;
  {
    BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, kPace));
    LoadClient client(rig->api(), std::string(kAnswerMark));
    const auto make = [&](std::uint64_t) {
      return chat_post(rig->api(), chat_body(kBody, ++number, kTokens));
    };
    const Nanoseconds begin = now_ns();
    BATON_TRY(client.closed_loop(
        2 * kPace.max_batch, kMeasureSeconds + kRampSeconds, kOverloadPatience, make));
    row.capacity = rate_between(client.take_answers(),
                                begin + to_ns(kRampSeconds),
                                begin + to_ns(kMeasureSeconds + kRampSeconds),
                                0);
    if (row.capacity <= 0) {
      return fail(ErrorCode::Unavailable, "the nodes answered nothing in the closed loop");
    }
    BATON_TRY(client.open_loop(row.capacity / 2, kMeasureSeconds, kOverloadPatience, random, make));
    std::vector<double> first;
    for (const LoadAnswer& answer : client.take_answers()) {
      first.push_back(answer.first_us());
    }
    row.unloaded = spread_of(std::move(first));
  }
  RigOptions bounded = options.rig;
  for (const std::string_view tier : kTierNames) {
    bounded.set.push_back(fmt::format(
        "gateway.tiers.{}.ttft_target_ms={}", tier, static_cast<unsigned>(kTargetSeconds * 1000)));
  }
  BATON_ASSIGN(const auto rig, GatewayRig::start(bounded, kPace));
  LoadClient client(rig->api(), std::string(kAnswerMark));
  row.offered = row.capacity * kExcess;
  const double seconds = std::max<double>(options.overload_seconds, kRampSeconds + 1);
  const Nanoseconds begin = now_ns();
  BATON_TRY(
      client.open_loop(row.offered, seconds, kOverloadPatience, random, [&](std::uint64_t tag) {
        return chat_post(rig->api(),
                         chat_body(kBody, ++number, kTokens, kTierNames[tag % kNumTiers]));
      }));
  client.give_up();
  const auto answers = client.take_answers();
  row.goodput_share =
      rate_between(answers, begin + to_ns(kRampSeconds), begin + to_ns(seconds), row.target_us) /
      row.capacity;
  std::vector<double> first;
  std::vector<double> refusals;
  std::array<std::vector<double>, kNumTiers> first_of;
  for (const std::string_view tier : kTierNames) {
    row.tiers.push_back({.name = std::string(tier)});
  }
  for (const LoadAnswer& answer : answers) {
    if (answer.status == 200 && answer.is_whole && answer.marks == kTokens) {
      ++row.answered;
      first.push_back(answer.first_us());
      ++row.tiers[answer.tag % kNumTiers].answered;
      first_of[answer.tag % kNumTiers].push_back(answer.first_us());
    } else if (answer.status == 429) {
      ++row.refused;
      ++row.tiers[answer.tag % kNumTiers].refused;
      row.refused_without_hint += answer.has_retry_after ? 0 : 1;
      refusals.push_back(answer.first_us());
    } else {
      ++row.other;
    }
  }
  for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
    row.tiers[tier].first = spread_of(std::move(first_of[tier]));
  }
  row.accepted = spread_of(std::move(first));
  row.refusal = spread_of(std::move(refusals));
  return row;
}

}  // namespace baton::bench
