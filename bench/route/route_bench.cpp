#include "bench/route/route_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::bench {
namespace {

constexpr double kScarce = 3;  // working set beside the caches
constexpr double kAmple = 0.5;
constexpr double kNearUnlimited = 0.95;

std::uint32_t cache_for(std::size_t shared, double times, std::uint32_t nodes) {
  return std::max(
      1U, static_cast<std::uint32_t>(std::lround(static_cast<double>(shared) / times / nodes)));
}

const ReplayResult& of(const RouteScenario& scenario, ReplayPolicy policy) {
  return *std::ranges::find(scenario.results, policy, &ReplayResult::policy);
}

void check(const RouteScenario& scenario, std::vector<std::string>& broken) {
  if (scenario.working_set > 1) {
    constexpr ReplayPolicy kOrder[] = {
        ReplayPolicy::Cost, ReplayPolicy::Precise, ReplayPolicy::Approximate, ReplayPolicy::Random};
    for (std::size_t i = 1; i < std::size(kOrder); ++i) {
      const double better = of(scenario, kOrder[i - 1]).ttft_s.p90;
      const double worse = of(scenario, kOrder[i]).ttft_s.p90;
      if (better > worse) {
        broken.push_back(fmt::format("{}: P90 TTFT of {} is {:.3f} s, of {} {:.3f} s",
                                     scenario.name,
                                     to_string(kOrder[i - 1]),
                                     better,
                                     to_string(kOrder[i]),
                                     worse));
      }
    }
    return;
  }
  // Whatever need not be computed was in a cache of the pair.
  const ReplayResult& ours = of(scenario, ReplayPolicy::Cost);
  if (const double rate = ours.hit_rate + ours.pulled_rate;
      rate < kNearUnlimited * scenario.unlimited_hit_rate) {
    broken.push_back(fmt::format("{}: hit rate {:.3f}, an unlimited cache's {:.3f}",
                                 scenario.name,
                                 rate,
                                 scenario.unlimited_hit_rate));
  }
}

}  // namespace

RouteReport run_route_bench(const Trace& trace,
                            const ReplayOptions& options,
                            const std::function<void(std::string_view)>& progress) {
  RouteReport report;
  const std::size_t shared = shared_blocks(trace);
  const auto add = [&](std::string name, std::uint32_t cache_blocks) {
    RouteScenario scenario;
    scenario.name = std::move(name);
    scenario.cache_blocks = cache_blocks;
    scenario.working_set = static_cast<double>(shared) / cache_blocks / options.prefill_nodes;
    scenario.unlimited_hit_rate = unlimited_hit_rate(trace, first_counted(trace, options));
    ReplayOptions at_hand = options;
    at_hand.cache_blocks = cache_blocks;
    for (const ReplayPolicy policy : kReplayPolicies) {
      progress(fmt::format("{}: {}", scenario.name, to_string(policy)));
      scenario.results.push_back(replay(trace, at_hand, policy));
    }
    check(scenario, report.broken);
    report.scenarios.push_back(std::move(scenario));
  };
  if (options.cache_blocks > 0) {
    add("as asked", options.cache_blocks);
  } else {
    add("scarce", cache_for(shared, kScarce, options.prefill_nodes));
    add("ample", cache_for(shared, kAmple, options.prefill_nodes));
  }
  progress("one decision");
  report.decision = measure_decision(16, 64);
  return report;
}

std::string to_table(const RouteReport& report) {
  std::string out;
  for (const RouteScenario& scenario : report.scenarios) {
    out += fmt::format(
        "{}: {} blocks of cache a node, working set {:.2f} times all caches; an "
        "unlimited cache would hit {:.1f} %\n",
        scenario.name,
        scenario.cache_blocks,
        scenario.working_set,
        scenario.unlimited_hit_rate * 100);
    out += fmt::format("  {:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>9}\n",
                       "policy",
                       "TTFT P50",
                       "P90",
                       "P99 s",
                       "ITL P50",
                       "P90",
                       "P99 ms",
                       "hits %",
                       "pulled %");
    for (const ReplayResult& result : scenario.results) {
      out += fmt::format(
          "  {:<14}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.1f}{:>10.1f}{:>10.1f}{:>8.1f}{:>9.1f}\n",
          to_string(result.policy),
          result.ttft_s.p50,
          result.ttft_s.p90,
          result.ttft_s.p99,
          result.itl_s.p50 * 1e3,
          result.itl_s.p90 * 1e3,
          result.itl_s.p99 * 1e3,
          result.hit_rate * 100,
          result.pulled_rate * 100);
    }
  }
  out += fmt::format(
      "one decision, 16 nodes, prompt of 64 blocks: {:.0f} ns, of which lookup {:.0f} "
      "ns; {:.0f} bytes a block\n",
      report.decision.whole_ns,
      report.decision.lookup_ns,
      report.decision.bytes_per_block);
  for (const std::string& sentence : report.broken) {
    out += fmt::format("does not hold: {}\n", sentence);
  }
  return out;
}

std::string to_markdown(const RouteReport& report) {
  std::string out =
      "| caches | policy | TTFT P50 | P90 | P99 | ITL P50 | P90 | P99 | hits | pulled |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const RouteScenario& scenario : report.scenarios) {
    for (const ReplayResult& result : scenario.results) {
      out += fmt::format(
          "| {} | {} | {:.3f} s | {:.3f} s | {:.3f} s | {:.1f} ms | {:.1f} ms | "
          "{:.1f} ms | {:.1f} % | {:.1f} % |\n",
          scenario.name,
          to_string(result.policy),
          result.ttft_s.p50,
          result.ttft_s.p90,
          result.ttft_s.p99,
          result.itl_s.p50 * 1e3,
          result.itl_s.p90 * 1e3,
          result.itl_s.p99 * 1e3,
          result.hit_rate * 100,
          result.pulled_rate * 100);
    }
  }
  return out;
}

std::string to_json(const RouteReport& report) {
  const auto percentiles = [](const Spread& values) {
    return fmt::format("[{:.6f},{:.6f},{:.6f}]", values.p50, values.p90, values.p99);
  };
  std::string out = "{\"scenarios\":[";
  for (const RouteScenario& scenario : report.scenarios) {
    out += fmt::format(
        "{}{{\"name\":\"{}\",\"cache_blocks\":{},\"working_set\":{:.3f},"
        "\"unlimited_hit_rate\":{:.4f},\"policies\":[",
        out.back() == '[' ? "" : ",",
        scenario.name,
        scenario.cache_blocks,
        scenario.working_set,
        scenario.unlimited_hit_rate);
    for (const ReplayResult& result : scenario.results) {
      out += fmt::format(
          "{}{{\"policy\":\"{}\",\"requests\":{},\"ttft_s\":{},\"itl_s\":{},\"hit_rate\":{:.4f},"
          "\"pulled_rate\":{:.4f},\"computed_tokens\":{},\"moved_tokens\":{}}}",
          out.back() == '[' ? "" : ",",
          to_string(result.policy),
          result.finished,
          percentiles(result.ttft_s),
          percentiles(result.itl_s),
          result.hit_rate,
          result.pulled_rate,
          result.computed_tokens,
          result.moved_tokens);
    }
    out += "]}";
  }
  return out + fmt::format(
                   "],\"decision\":{{\"whole_ns\":{:.1f},\"lookup_ns\":{:.1f},"
                   "\"bytes_per_block\":{:.1f}}},\"holds\":{}}}",
                   report.decision.whole_ns,
                   report.decision.lookup_ns,
                   report.decision.bytes_per_block,
                   report.broken.empty());
}

}  // namespace baton::bench
