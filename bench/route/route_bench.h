// Compares routing policies on one trace, with caches too small for it and with caches that hold
// it. What `baton bench route` prints.
//
// Thread: the caller's. Failure: none; an order that was promised and is not there is a result.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/route/decision_cost.h"
#include "bench/route/replay.h"

namespace baton::bench {

struct RouteScenario {
  std::string name;
  std::uint32_t cache_blocks = 0;  // of each prefill node
  double working_set = 0;          // blocks that requests share, beside all caches together
  double unlimited_hit_rate = 0;
  std::vector<ReplayResult> results;  // in the order of kReplayPolicies
};

struct RouteReport {
  std::vector<RouteScenario> scenarios;
  DecisionCost decision;
  // What must hold and does not, in words.
  std::vector<std::string> broken;
};

// `cache_blocks` of the options 0: two scenarios, a third and twice of what the trace shares.
RouteReport run_route_bench(const Trace& trace,
                            const ReplayOptions& options,
                            const std::function<void(std::string_view)>& progress);
std::string to_table(const RouteReport& report);
std::string to_markdown(const RouteReport& report);
std::string to_json(const RouteReport& report);

}  // namespace baton::bench
