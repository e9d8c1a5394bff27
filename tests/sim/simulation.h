// One run of one plan: requests and faults come at their times, then everything heals, and every
// promise must have been kept.
//
//   start -> (all registered) -> horizon: requests, faults, weather -> heal -> every request ends
//   -> every node is back -> fresh requests on the healed cluster -> quiet: nothing is left
//
// Owner: main, or a test. Thread: one. Failure: `failure()` says which invariant broke.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/sim/cluster.h"
#include "tests/sim/plan.h"
#include "tests/sim/world.h"

namespace baton::sim {

struct SimCounts {
  std::uint64_t seeds = 0;
  std::uint64_t requests = 0;
  std::map<std::string, std::uint64_t> ends;    // by how
  std::map<std::string, std::uint64_t> errors;  // by code
  std::uint64_t attempts = 0;                   // requests of more than one attempt
  std::uint64_t failovers = 0;
  std::uint64_t kills = 0;
  std::uint64_t drains = 0;
  std::uint64_t stops = 0;
  std::uint64_t cuts = 0;
  std::uint64_t partitions = 0;
  DataCounts data;
  std::uint64_t tasks = 0;
  double virtual_seconds = 0;

  void add(const SimCounts& other);
  std::string to_string() const;
};

class Simulation {
 public:
  Simulation(Plan plan, bool verbose);

  // False: an invariant is broken.
  bool run();
  const std::string& failure() const { return world_.failure(); }
  SimCounts counts() const;
  std::uint64_t trace_hash() const { return world_.trace_hash(); }

  // For directed scenarios.
  World& world() { return world_; }
  Cluster& cluster() { return cluster_; }
  const Plan& plan() const { return plan_; }
  // Waits until every node is registered everywhere.
  bool start();
  // Everything that stops, heals and quiets; the last checks.
  bool finish();

 private:
  void begin_fault(const Fault& fault);
  void apply(const Fault& fault);
  void check_ends();
  bool is_allowed(const Client& client) const;

  const Plan plan_;
  World world_;
  Cluster cluster_;
  bool has_healed_ = false;
};

}  // namespace baton::sim
