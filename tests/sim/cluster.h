// The processes of a simulation: real gateways above HTTP (membership, tracker, router, queue) with
// recording clients, real prefill and decode nodes with the scripted model; and the ways to harm
// them. A process that dies stays as it was, so that nothing it had can be taken for its successor.
//
// Owner: a Simulation. Thread: the simulation's. Failure: what cannot be set up ends the process.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/cluster/membership.h"
#include "gateway/cluster/route_health.h"
#include "gateway/requests/request_tracker.h"
#include "tests/sim/arena_watch.h"
#include "tests/sim/client.h"
#include "tests/sim/data_path.h"
#include "tests/sim/machine.h"
#include "tests/sim/plan.h"
#include "tests/sim/world.h"
#include "tests/support/memory_channel.h"

namespace baton::sim {

// One life of a gateway.
class SimGateway {
 public:
  SimGateway(World& world,
             Process& process,
             testing::MemoryFabric& fabric,
             const Plan& plan,
             std::size_t index,
             std::uint64_t incarnation,
             const Logger& log);
  Process& process() { return process_; }
  gateway::Membership& membership() { return membership_; }
  gateway::RequestTracker& tracker() { return tracker_; }
  const gateway::RouteHealth& health() const { return health_; }
  // As the API does: on its strand.
  void submit(const std::shared_ptr<Client>& client);

 private:
  Process& process_;
  Strand& control_;
  const gateway::Probe probe_;
  const std::unique_ptr<Network> network_;
  gateway::RouteHealth health_;
  gateway::Membership membership_;
  gateway::RequestTracker tracker_;
};

// One life of a node.
class SimNode {
 public:
  SimNode(World& world,
          Process& process,
          testing::MemoryFabric& fabric,
          DataPath& data,
          const Plan& plan,
          const NodePlan& node,
          const std::string& listen,
          std::uint64_t incarnation,
          const Logger& log);
  Process& process() { return process_; }
  Machine& node() { return *node_; }
  ArenaWatch& watch() { return watch_; }
  Strand& control() { return control_; }
  bool is_decode() const { return is_decode_; }
  const std::string& name() const { return process_.name(); }
  // Empty when nothing is in work here and every block is free or cached; else what is left.
  std::string leftovers() const;

 private:
  Process& process_;
  Strand& control_;
  const bool is_decode_;
  ArenaWatch watch_;
  std::unique_ptr<Machine> node_;
};

class Cluster {
 public:
  Cluster(World& world, const Plan& plan);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  void start_gateway(std::size_t index);
  void start_node(const std::string& name);

  void kill(const std::string& name);
  // Lets it say goodbye, then kills it.
  void exit(const std::string& name);
  // An operator asks for it at a gateway, or at the node.
  void drain(const std::string& name, milliseconds limit);
  void stop(const std::string& name);
  void go_on(const std::string& name);
  // Whatever it needs to serve again: continued, or started anew.
  void revive(const std::string& name);
  void cut_control(const std::string& one, const std::string& other);
  void cut_data(const std::string& one, const std::string& other);
  void part(const std::string& one, const std::string& other, Duration lasts);
  // How long the last partition still lasts.
  Duration longest_hold() const;

  void set_control_weather(const ControlWeather& weather) { control_weather_ = weather; }
  DataPath& data() { return data_; }
  testing::MemoryFabric& fabric() { return fabric_; }

  // Null while dead.
  SimGateway* gateway(std::size_t index);
  SimNode* node(const std::string& name);
  std::vector<SimGateway*> gateways();
  std::vector<SimNode*> nodes();
  std::vector<std::string> names() const;  // of all processes
  // Gives a client's request to its gateway now.
  std::shared_ptr<Client> submit(const ClientPlan& plan);
  const std::vector<std::shared_ptr<Client>>& clients() const { return clients_; }

  // Every node is registered with, and alive for, every gateway.
  bool is_complete();
  // Empty when every process is alive and idle, and every promise was kept; else what is left.
  std::string leftovers();
  // What must hold at any moment.
  void check();

  std::uint64_t kills = 0;
  std::uint64_t drains = 0;
  std::uint64_t stops = 0;
  std::uint64_t cuts = 0;
  std::uint64_t partitions = 0;

 private:
  testing::FrameFate fate(const std::string& from, const std::string& to, const wire::Frame& frame);
  Duration held(const std::string& from, const std::string& to) const;
  const Logger& log_of(const std::string& name);

  World& world_;
  const Plan plan_;
  Rng rng_;
  testing::MemoryFabric fabric_;
  DataPath data_;
  ControlWeather control_weather_;
  std::map<std::pair<std::string, std::string>, TimePoint> parted_;  // until
  std::set<std::string> draining_;
  std::map<std::string, Logger> logs_;
  std::map<std::string, std::unique_ptr<SimGateway>> gateways_;
  std::map<std::string, std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimGateway>> dead_gateways_;
  std::vector<std::unique_ptr<SimNode>> dead_nodes_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::uint64_t next_incarnation_ = 1;
};

}  // namespace baton::sim
