// Compares ways to share nodes between the two roles on loads that change: every static ratio, an
// oracle, the pool policy of the gateway; and the policy's numbers of replicas followed by somebody
// who starts and stops nodes. What `baton bench pools` prints.
//
// The oracle knows what comes: every minute it tries each ratio near the present one on the
// arrivals of the next minutes in a copy of the cluster and takes the best; it changes roles at
// once and at no cost. Where a static ratio does better, that one counts as the oracle's.
//
// Thread: the caller's. Failure: none; what was promised and is not there is a result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/pools/load.h"
#include "bench/pools/sim_pools.h"

namespace baton::bench {

struct PoolsBenchOptions {
  SimPoolOptions cluster;
  double day_s = 24 * 3600;
  double scale = 1;       // of the rates
  double interval_s = 5;  // of the policy
  double cooldown_s = 120;
  gateway::PoolSize least{2, 2};  // floors
  std::uint64_t seed = 1;
};

struct PoolsResult {
  std::string policy;     // static 4:8, oracle, controller, replicas
  double attainment = 0;  // share of requests that kept both targets
  std::uint32_t flips = 0;
  double node_hours = 0;
  gateway::PoolSize fewest;  // usable nodes of each role, at any time
};

struct PoolsScenario {
  std::string load;
  bool is_steady = false;
  double hours = 0;
  std::uint64_t requests = 0;
  std::vector<PoolsResult> results;
  const PoolsResult& of(std::string_view policy) const;
};

struct PoolsReport {
  std::vector<PoolsScenario> scenarios;
  // What must hold and does not, in words.
  std::vector<std::string> broken;
};

PoolsReport run_pools_bench(const PoolsBenchOptions& options,
                            const std::function<void(std::string_view)>& progress);
std::string to_table(const PoolsReport& report);
std::string to_json(const PoolsReport& report);

}  // namespace baton::bench
