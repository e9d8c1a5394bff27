// What a seed means: the shape of the cluster, the requests and when they come, the weather of both
// networks and the faults. A plan is a value; a directed test changes the one it got.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/cluster_config.h"
#include "gateway/requests/request_tracker.h"
#include "tests/sim/data_path.h"
#include "tests/sim/rng.h"
#include "tests/support/scripted_runner.h"

namespace baton::sim {

struct NodePlan {
  std::string name;
  std::string role;  // prefill, decode
  std::uint32_t num_blocks = 64;
  bool keeps_port = true;  // after a restart
};

struct ClientPlan {
  Duration at{};
  std::size_t gateway = 0;
  GenerateRequest request;
  std::uint32_t stop_after = 0;           // tokens, then a stop string was found; 0: never
  bool wants_figures = false;             // the stop waits for them
  std::optional<Duration> cancel_after;   // since it came
  std::uint32_t cancel_after_tokens = 0;  // 0: never
};

enum class FaultKind : std::uint8_t {
  Kill,        // as kill -9; comes back after `lasts`
  Stop,        // as SIGSTOP; goes on after `lasts`
  Exit,        // as SIGTERM: stops by itself, then comes back
  CutControl,  // the control connections between `target` and `other` break
  CutData,     // the data connection between them breaks
  Partition,   // nothing passes between them for `lasts`
  Drain,       // its operator drains it, with `limit`; it is killed and comes back after `lasts`
};

struct Fault {
  Duration at{};
  FaultKind kind = FaultKind::Kill;
  std::string target;
  std::string other;
  Duration lasts{};
  milliseconds limit{};
  std::uint64_t tasks = 0;  // of the target, that still run before it happens
};

// Of every control frame.
struct ControlWeather {
  double slow = 0;
  Duration slow_most{};
};

struct Plan {
  std::uint64_t seed = 0;
  std::size_t gateways = 1;
  std::vector<NodePlan> nodes;
  ClusterConfig config;
  gateway::TrackerOptions tracker;
  testing::ScriptedOptions model;
  transfer::DigestMode digest = transfer::DigestMode::All;
  std::vector<ClientPlan> clients;
  std::vector<Fault> faults;
  ControlWeather control;
  DataWeather data;
  Duration horizon{};       // faults and weather end here
  bool waits_first = true;  // requests come only once every node is registered

  // Nothing goes wrong: then nothing may look wrong.
  bool is_calm() const;
};

std::string gateway_name(std::size_t index);
std::string gateway_address(std::size_t index);

Plan make_plan(std::uint64_t seed);
// A plan without faults: `prefills` + `decodes` nodes p0… and d0…, one gateway, no request yet.
Plan quiet_plan(std::uint64_t seed, std::size_t prefills, std::size_t decodes);
// A request whose prompt depends on `text` alone.
GenerateRequest plan_request(std::uint64_t id,
                             std::size_t prompt,
                             std::uint32_t max_tokens,
                             std::uint64_t text);

}  // namespace baton::sim
