#include "bench/pools/pools_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "gateway/pools/pool_policy.h"

namespace baton::bench {
namespace {

using gateway::PoolDecision;
using gateway::PoolPolicy;
using gateway::PoolSize;

constexpr double kOfOracle = 0.95;
constexpr double kFlipsAnHour = 1;
constexpr double kOracleEvery = 120;  // seconds
constexpr double kOracleAhead = 150;  // that it looks
constexpr int kOracleReach = 2;       // nodes that it moves at once
constexpr std::string_view kController = "controller";
constexpr std::string_view kOracle = "oracle";

TimePoint at(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

PoolSize half(std::uint32_t nodes) {
  return {nodes / 2, nodes - nodes / 2};
}

class Comparison {
 public:
  Comparison(const PoolsBenchOptions& options, const PoolLoadShape& shape)
      : options_(options), shape_(shape), trace_(draw(shape, options.seed)) {}

  PoolsScenario run(const std::function<void(std::string_view)>& progress) {
    PoolsScenario out{.load = shape_.name,
                      .is_steady = shape_.is_steady,
                      .hours = shape_.seconds / 3600,
                      .requests = trace_.size(),
                      .results = {}};
    const std::uint32_t nodes = options_.cluster.nodes;
    progress(fmt::format("{}: static ratios", shape_.name));
    for (std::uint32_t prefill = options_.least.prefill; prefill + options_.least.decode <= nodes;
         ++prefill) {
      out.results.push_back(fixed({prefill, nodes - prefill}));
    }
    const auto best = std::ranges::max(out.results, {}, &PoolsResult::attainment);
    progress(fmt::format("{}: oracle", shape_.name));
    PoolsResult oracle = foreseen();
    if (best.attainment > oracle.attainment) {
      oracle.attainment = best.attainment;
      oracle.flips = 0;
    }
    out.results.push_back(std::move(oracle));
    progress(fmt::format("{}: controller", shape_.name));
    out.results.push_back(controlled());
    out.results.push_back(replicas());
    return out;
  }

 private:
  // Works off what is left; nodes count up to now.
  PoolsResult finished(std::string policy,
                       SimPools& pools,
                       std::uint32_t flips,
                       PoolSize fewest) const {
    PoolsResult out;
    out.policy = std::move(policy);
    out.flips = flips;
    out.fewest = fewest;
    out.node_hours = pools.node_seconds() / 3600;
    pools.finish(trace_);
    out.attainment = static_cast<double>(pools.good()) / static_cast<double>(trace_.size());
    return out;
  }

  PoolsResult fixed(PoolSize roles) const {
    SimPools pools(options_.cluster, roles);
    pools.run(trace_, shape_.seconds);
    return finished(fmt::format("static {}:{}", roles.prefill, roles.decode), pools, 0, roles);
  }

  PoolsResult foreseen() const {
    SimPools pools(options_.cluster, half(options_.cluster.nodes));
    const auto nodes = static_cast<int>(options_.cluster.nodes);
    std::uint32_t flips = 0;
    PoolSize fewest = pools.usable();
    while (pools.now() < shape_.seconds) {
      const PoolSize there = pools.usable();
      PoolSize best = there;
      std::uint64_t least_bad = ~std::uint64_t{0};
      const double horizon = pools.now() + kOracleAhead;
      for (int move : {0, 1, -1, 2, -2}) {
        const int prefill = static_cast<int>(there.prefill) + move;
        if (std::abs(move) > kOracleReach || prefill < static_cast<int>(options_.least.prefill) ||
            nodes - prefill < static_cast<int>(options_.least.decode)) {
          continue;
        }
        const PoolSize roles{static_cast<std::uint32_t>(prefill),
                             static_cast<std::uint32_t>(nodes - prefill)};
        SimPools branch = pools;
        branch.change_at_once(roles);
        branch.run(trace_, horizon);
        if (const std::uint64_t bad = branch.bad(horizon); bad < least_bad) {
          best = roles;
          least_bad = bad;
        }
      }
      flips += static_cast<std::uint32_t>(
          std::abs(static_cast<int>(best.prefill) - static_cast<int>(there.prefill)));
      pools.change_at_once(best);
      fewest = {std::min(fewest.prefill, best.prefill), std::min(fewest.decode, best.decode)};
      pools.run(trace_, std::min(pools.now() + kOracleEvery, shape_.seconds));
    }
    return finished(std::string(kOracle), pools, flips, fewest);
  }

  gateway::PoolOptions policy_options(PoolSize most) const {
    return {.least = options_.least,
            .most = most,
            .ratio = std::nullopt,
            .ttft_s = options_.cluster.ttft_s,
            .itl_s = options_.cluster.itl_s,
            .cooldown = std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(options_.cooldown_s))};
  }

  // `act` carries out what was decided.
  template <typename Act>
  PoolsResult steered(std::string_view name, PoolSize most, Act act) const {
    SimPools pools(options_.cluster, half(options_.cluster.nodes));
    PoolPolicy policy(policy_options(most));
    std::uint32_t flips = 0;
    PoolSize fewest = pools.usable();
    while (pools.now() < shape_.seconds) {
      pools.run(trace_, std::min(pools.now() + options_.interval_s, shape_.seconds));
      const PoolDecision decision = policy.decide(at(pools.now()), pools.observe());
      flips += act(pools, decision);
      const PoolSize there = pools.usable();
      fewest = {std::min(fewest.prefill, there.prefill), std::min(fewest.decode, there.decode)};
    }
    return finished(std::string(name), pools, flips, fewest);
  }

  PoolsResult controlled() const {
    const std::uint32_t nodes = options_.cluster.nodes;
    return steered(kController, {nodes, nodes}, [](SimPools& pools, const PoolDecision& decision) {
      pools.change(decision.change);
      return static_cast<std::uint32_t>(decision.change.size());
    });
  }

  PoolsResult replicas() const {
    const std::uint32_t nodes = options_.cluster.nodes;
    return steered("replicas", {nodes, nodes}, [](SimPools& pools, const PoolDecision& decision) {
      pools.scale(decision.desired);
      return 0U;
    });
  }

  const PoolsBenchOptions& options_;
  const PoolLoadShape& shape_;
  const PoolTrace trace_;
};

void check(const PoolsScenario& scenario,
           const PoolsBenchOptions& options,
           std::vector<std::string>& broken) {
  const PoolsResult& ours = scenario.of(kController);
  const PoolsResult& oracle = scenario.of(kOracle);
  if (ours.attainment < kOfOracle * oracle.attainment) {
    broken.push_back(fmt::format("{}: {:.1f} % kept their targets, with the oracle {:.1f} %",
                                 scenario.load,
                                 ours.attainment * 100,
                                 oracle.attainment * 100));
  }
  if (scenario.is_steady && ours.flips > kFlipsAnHour * scenario.hours) {
    broken.push_back(
        fmt::format("{}: {} flips in {:.1f} hours", scenario.load, ours.flips, scenario.hours));
  }
  if (ours.fewest.prefill < options.least.prefill || ours.fewest.decode < options.least.decode) {
    broken.push_back(
        fmt::format("{}: {} prefill and {} decode nodes at one time, floors are {} and {}",
                    scenario.load,
                    ours.fewest.prefill,
                    ours.fewest.decode,
                    options.least.prefill,
                    options.least.decode));
  }
}

}  // namespace

const PoolsResult& PoolsScenario::of(std::string_view policy) const {
  return *std::ranges::find(results, policy, &PoolsResult::policy);
}

PoolsReport run_pools_bench(const PoolsBenchOptions& options,
                            const std::function<void(std::string_view)>& progress) {
  PoolsReport report;
  for (const PoolLoadShape& shape : pool_loads(options.day_s, options.scale)) {
    PoolsScenario scenario = Comparison(options, shape).run(progress);
    check(scenario, options, report.broken);
    report.scenarios.push_back(std::move(scenario));
  }
  return report;
}

std::string to_table(const PoolsReport& report) {
  std::string out;
  for (const PoolsScenario& scenario : report.scenarios) {
    out += fmt::format(
        "{}: {:.1f} hours, {} requests\n", scenario.load, scenario.hours, scenario.requests);
    out += fmt::format(
        "  {:<14}{:>10}{:>8}{:>12}{:>10}\n", "policy", "kept %", "flips", "node hours", "fewest");
    for (const PoolsResult& result : scenario.results) {
      out += fmt::format("  {:<14}{:>10.2f}{:>8}{:>12.1f}{:>10}\n",
                         result.policy,
                         result.attainment * 100,
                         result.flips,
                         result.node_hours,
                         fmt::format("{}:{}", result.fewest.prefill, result.fewest.decode));
    }
  }
  for (const std::string& sentence : report.broken) {
    out += fmt::format("does not hold: {}\n", sentence);
  }
  return out;
}

std::string to_json(const PoolsReport& report) {
  std::string out = "{\"loads\":[";
  for (const PoolsScenario& scenario : report.scenarios) {
    out += fmt::format("{}{{\"name\":\"{}\",\"hours\":{:.3f},\"requests\":{},\"policies\":[",
                       out.back() == '[' ? "" : ",",
                       scenario.load,
                       scenario.hours,
                       scenario.requests);
    for (const PoolsResult& result : scenario.results) {
      out += fmt::format(
          "{}{{\"policy\":\"{}\",\"attainment\":{:.5f},\"flips\":{},\"node_hours\":{:.2f},"
          "\"fewest_prefill\":{},\"fewest_decode\":{}}}",
          out.back() == '[' ? "" : ",",
          result.policy,
          result.attainment,
          result.flips,
          result.node_hours,
          result.fewest.prefill,
          result.fewest.decode);
    }
    out += "]}";
  }
  return out + fmt::format("],\"holds\":{}}}", report.broken.empty());
}

}  // namespace baton::bench
