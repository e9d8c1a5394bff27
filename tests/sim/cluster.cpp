#include "tests/sim/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "common/base/check.h"
#include "tests/sim/describe.h"

namespace baton::sim {

using engine::BlockUse;

SimGateway::SimGateway(World& world,
                       Process& process,
                       testing::MemoryFabric& fabric,
                       const Plan& plan,
                       std::size_t index,
                       std::uint64_t incarnation,
                       const Logger& log)
    : process_(process),
      control_(process.add_strand("control", {microseconds(0), microseconds(300), 0.3})),
      network_(fabric.network(process.name(), control_)),
      health_(log, nullptr, {}, [] {}),
      membership_(
          control_,
          *network_,
          log,
          plan.config.cluster,
          process.name(),
          Incarnation{incarnation},
          {[this](gateway::Node& node) { tracker_.on_node_changed(node); },
           [this](gateway::Node& node) { tracker_.on_node_changed(node); },
           [this](gateway::Node& node, const wire::TokenFrame& frame) {
             tracker_.on_tokens(node, frame);
           },
           [this](gateway::Node& node, const Error& why) { tracker_.on_node_down(node, why); },
           [this](gateway::Node& node, const wire::KvEvents& events) {
             tracker_.on_kv_events(node, events);
           },
           [this](gateway::Node& node, wire::Granted& granted) {
             tracker_.on_granted(node, granted);
           }}),
      tracker_(control_, membership_, health_, log, probe_, plan.tracker) {
  const Status listening = membership_.listen(gateway_address(index));
  BATON_CHECK(listening.has_value(), "a simulated gateway cannot listen");
  (void)world;
}

void SimGateway::submit(const std::shared_ptr<Client>& client) {
  const RequestId id = client->plan().request.id;
  client->start(
      {[this, id](bool want_figures) {
         control_.post([this, id, want_figures] { tracker_.stop(id, want_figures); });
       },
       [this, id] { control_.post([this, id] { tracker_.cancel(id, "the client has left"); }); }});
  control_.post([this, client, now = control_.now()] {
    if (!client->is_over()) {
      tracker_.submit({client->plan().request, now, client});
    }
  });
}

SimNode::SimNode(World& world,
                 Process& process,
                 testing::MemoryFabric& fabric,
                 DataPath& data,
                 const Plan& plan,
                 const NodePlan& node,
                 const std::string& listen,
                 std::uint64_t incarnation,
                 const Logger& log)
    : process_(process),
      control_(process.add_strand("control", {microseconds(0), microseconds(500), 0.3})),
      is_decode_(node.role == "decode"),
      watch_(world, process.name()) {
  Strand& engine = process.add_strand("engine", {microseconds(200), milliseconds(4), 1});
  Strand& reactor = process.add_strand("data", {microseconds(0), microseconds(100), 0.5});
  MachineOptions options{.model = plan.model,
                         .config = plan.config,
                         .role = node.role,
                         .num_blocks = node.num_blocks,
                         .incarnation = incarnation,
                         .digest = plan.digest,
                         .log = log};
  options.model.check_plan = [this](const engine::StepPlan& step) { watch_.step(step); };
  options.entry.name = node.name;
  options.entry.control_listen = listen;
  node_ = std::make_unique<Machine>(
      control_,
      engine,
      fabric.network(process.name(), control_),
      [&](const KvArenaView& arena) {
        return data.make_transport(process, reactor, arena, watch_);
      },
      std::move(options));
  watch_.attach(node_->kv());
  control_.post([this] {
    const Status started = node_->role().start();
    BATON_CHECK(started.has_value(), "a simulated node did not start");
  });
}

std::string SimNode::leftovers() const {
  if (!node_->is_clean()) {
    return fmt::format("{}: {}", process_.name(), node_->describe_blocks());
  }
  const auto stats = node_->transport().stats();
  std::size_t in_work = 0;
  if (is_decode_) {
    const auto& decode = node_->decode();
    in_work = decode.grants().num_open() + decode.grants().num_quarantined() +
              decode.scheduler().num_running();
  } else {
    in_work = node_->prefill().scheduler().num_jobs();
  }
  if (in_work + stats.open_leases + stats.open_sends > 0) {
    return fmt::format("{}: {} requests in work, {} leases open, {} sends open",
                       process_.name(),
                       in_work,
                       stats.open_leases,
                       stats.open_sends);
  }
  return "";
}

Cluster::Cluster(World& world, const Plan& plan)
    : world_(world),
      plan_(plan),
      rng_(plan.seed, 4),
      fabric_(world.outside()),
      data_(world, plan.seed) {
  fabric_.set_hook([this](const std::string& from,
                          const std::string& to,
                          const wire::Frame& frame) { return fate(from, to, frame); });
  fabric_.set_end_hook([this](const std::string& from, const std::string& to) {
    return rng_.between(microseconds(20), microseconds(300)) + held(from, to);
  });
  data_.set_hold([this](const std::string& from, const std::string& to) { return held(from, to); });
  for (std::size_t i = 0; i < plan_.gateways; ++i) {
    start_gateway(i);
  }
  for (const NodePlan& node : plan_.nodes) {
    start_node(node.name);
  }
}

Cluster::~Cluster() {
  // Nothing of it runs any more, so the order among processes does not matter.
  nodes_.clear();
  dead_nodes_.clear();
  gateways_.clear();
  dead_gateways_.clear();
}

Duration Cluster::held(const std::string& from, const std::string& to) const {
  const auto found = parted_.find(std::minmax(from, to));
  return found == parted_.end() || found->second <= world_.now() ? Duration::zero()
                                                                 : found->second - world_.now();
}

testing::FrameFate Cluster::fate(const std::string& from,
                                 const std::string& to,
                                 const wire::Frame& frame) {
  testing::FrameFate fate;
  fate.delay = rng_.between(microseconds(20), microseconds(300)) + held(from, to);
  if (rng_.chance(control_weather_.slow)) {
    fate.delay += rng_.between(Duration::zero(), control_weather_.slow_most);
  }
  if (world_.is_verbose() && frame.body_case() != wire::Frame::kHeartbeat) {
    world_.note(fmt::format("{} -> {} {}", from, to, describe(frame)));
  }
  return fate;
}

const Logger& Cluster::log_of(const std::string& name) {
  const auto found = logs_.find(name);
  if (found != logs_.end()) {
    return found->second;
  }
  Logger log = Logger::silent();
  if (world_.is_verbose()) {
    log = *Logger::create({"info", "text", name}, &std::cout);
  }
  return logs_.emplace(name, std::move(log)).first->second;
}

void Cluster::start_gateway(std::size_t index) {
  const std::string name = gateway_name(index);
  world_.note("start " + name);
  gateways_[name] = std::make_unique<SimGateway>(
      world_, world_.add_process(name), fabric_, plan_, index, next_incarnation_++, log_of(name));
}

void Cluster::start_node(const std::string& name) {
  const auto at = std::ranges::find(plan_.nodes, name, &NodePlan::name);
  const auto index = static_cast<std::size_t>(at - plan_.nodes.begin());
  world_.note("start " + name);
  nodes_[name] =
      std::make_unique<SimNode>(world_,
                                world_.add_process(name),
                                fabric_,
                                data_,
                                plan_,
                                *at,
                                fmt::format("10.0.1.{}:{}", index + 1, at->keeps_port ? 7100 : 0),
                                next_incarnation_++,
                                log_of(name));
}

void Cluster::kill(const std::string& name) {
  draining_.erase(name);
  if (const auto node = nodes_.find(name); node != nodes_.end()) {
    world_.note("KILL " + name);
    node->second->process().die();
    fabric_.vanish(name);
    data_.died(node->second->process());
    dead_nodes_.push_back(std::move(node->second));
    nodes_.erase(node);
  } else if (const auto gateway = gateways_.find(name); gateway != gateways_.end()) {
    world_.note("KILL " + name);
    gateway->second->process().die();
    fabric_.vanish(name);
    dead_gateways_.push_back(std::move(gateway->second));
    gateways_.erase(gateway);
    for (const auto& client : clients_) {
      if (gateway_name(client->plan().gateway) == name) {
        client->gateway_died();
      }
    }
  } else {
    return;
  }
  ++kills;
}

void Cluster::exit(const std::string& name) {
  SimNode* leaving = node(name);
  if (leaving == nullptr || leaving->process().life() != Life::Running) {
    return;
  }
  world_.note("EXIT " + name);
  leaving->control().post([this, leaving, name] {
    leaving->node().role().stop();
    world_.outside().post([this, leaving, name] {
      if (node(name) == leaving) {
        kill(name);
      }
    });
  });
}

void Cluster::drain(const std::string& name, milliseconds limit) {
  SimNode* leaving = node(name);
  SimGateway* asked = rng_.chance(0.5) ? gateway(rng_.below(plan_.gateways)) : nullptr;
  if (leaving == nullptr || leaving->process().life() != Life::Running) {
    return;
  }
  world_.note(fmt::format("DRAIN {} within {} ms", name, limit.count()));
  ++drains;
  draining_.insert(name);
  if (asked == nullptr || !asked->membership().drain(name, limit)) {
    leaving->control().post([leaving, limit] { leaving->node().role().drain(limit, nullptr); });
  }
}

void Cluster::stop(const std::string& name) {
  for (Process* process : {nodes_.contains(name) ? &nodes_.at(name)->process() : nullptr,
                           gateways_.contains(name) ? &gateways_.at(name)->process() : nullptr}) {
    if (process != nullptr && process->life() == Life::Running) {
      world_.note("STOP " + name);
      process->stop();
      ++stops;
    }
  }
}

void Cluster::go_on(const std::string& name) {
  for (Process* process : {nodes_.contains(name) ? &nodes_.at(name)->process() : nullptr,
                           gateways_.contains(name) ? &gateways_.at(name)->process() : nullptr}) {
    if (process != nullptr && process->life() == Life::Stopped) {
      world_.note("CONTINUE " + name);
      process->go_on();
    }
  }
}

void Cluster::revive(const std::string& name) {
  go_on(name);
  if (draining_.contains(name)) {
    kill(name);  // it stays so until somebody stops it
  }
  for (std::size_t i = 0; i < plan_.gateways; ++i) {
    if (name == gateway_name(i) && !gateways_.contains(name)) {
      start_gateway(i);
    }
  }
  if (std::ranges::find(plan_.nodes, name, &NodePlan::name) != plan_.nodes.end() &&
      !nodes_.contains(name)) {
    start_node(name);
  }
}

void Cluster::cut_control(const std::string& one, const std::string& other) {
  if (fabric_.cut(one, other)) {
    world_.note(fmt::format("CUT control {} {}", one, other));
    ++cuts;
  }
}

void Cluster::cut_data(const std::string& one, const std::string& other) {
  world_.note(fmt::format("CUT data {} {}", one, other));
  data_.cut(one, other);
  ++cuts;
}

void Cluster::part(const std::string& one, const std::string& other, Duration lasts) {
  world_.note(fmt::format("PART {} {}", one, other));
  parted_[std::minmax(one, other)] = world_.now() + lasts;
  ++partitions;
}

Duration Cluster::longest_hold() const {
  Duration longest{};
  for (const auto& [pair, until] : parted_) {
    longest = std::max(longest, until - world_.now());
  }
  return longest;
}

SimGateway* Cluster::gateway(std::size_t index) {
  const auto found = gateways_.find(gateway_name(index));
  return found == gateways_.end() ? nullptr : found->second.get();
}

SimNode* Cluster::node(const std::string& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : found->second.get();
}

std::vector<SimGateway*> Cluster::gateways() {
  std::vector<SimGateway*> all;
  for (const auto& [name, gateway] : gateways_) {
    all.push_back(gateway.get());
  }
  return all;
}

std::vector<SimNode*> Cluster::nodes() {
  std::vector<SimNode*> all;
  for (const auto& [name, node] : nodes_) {
    all.push_back(node.get());
  }
  return all;
}

std::vector<std::string> Cluster::names() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < plan_.gateways; ++i) {
    all.push_back(gateway_name(i));
  }
  for (const NodePlan& node : plan_.nodes) {
    all.push_back(node.name);
  }
  return all;
}

std::shared_ptr<Client> Cluster::submit(const ClientPlan& plan) {
  auto client =
      std::make_shared<Client>(world_, plan, testing::scripted_output(plan_.model, plan.request));
  clients_.push_back(client);
  SimGateway* to = gateway(plan.gateway);
  if (to == nullptr) {
    client->start({});
    client->gateway_died();
    return client;
  }
  if (world_.is_verbose()) {
    world_.note(fmt::format("request {} comes: {} tokens, up to {} more",
                            plan.request.id.value,
                            plan.request.prompt.size(),
                            plan.request.max_tokens));
  }
  to->submit(client);
  if (plan.cancel_after) {
    world_.outside().post_after(*plan.cancel_after, [client] { client->leave(); });
  }
  return client;
}

bool Cluster::is_complete() {
  if (gateways_.size() != plan_.gateways || nodes_.size() != plan_.nodes.size()) {
    return false;
  }
  return std::ranges::all_of(gateways_, [this](const auto& item) {
    const auto nodes = item.second->membership().nodes();
    return nodes.size() == plan_.nodes.size() &&
           std::ranges::all_of(nodes, [](const gateway::Node* node) {
             return node->health == PeerHealth::Alive && !node->draining;
           });
  });
}

std::string Cluster::leftovers() {
  for (const auto& [name, node] : nodes_) {
    if (std::string left = node->leftovers(); !left.empty()) {
      return left;
    }
    if (const std::size_t calls = fabric_.open_calls(name); calls > 0) {
      return fmt::format("{}: {} calls are open", name, calls);
    }
    if (node->is_decode() &&
        data_.open_inlets(node->process()) != node->node().decode().num_writers()) {
      return fmt::format("{}: {} inlets for {} writers",
                         name,
                         data_.open_inlets(node->process()),
                         node->node().decode().num_writers());
    }
  }
  for (const auto& [name, gateway] : gateways_) {
    if (gateway->tracker().active() + gateway->tracker().queued() > 0) {
      return fmt::format("{}: {} requests", name, gateway->tracker().active());
    }
    if (const std::size_t calls = fabric_.open_calls(name); calls > 0) {
      return fmt::format("{}: {} calls are open", name, calls);
    }
    for (const gateway::Node* node : gateway->membership().nodes()) {
      if (node->credits_used + node->tokens_given + node->sequences_given > 0) {
        return fmt::format("{}: on {} it holds {} credits, {} tokens, {} sequences",
                           name,
                           node->name,
                           node->credits_used,
                           node->tokens_given,
                           node->sequences_given);
      }
    }
  }
  return "";
}

void Cluster::check() {
  for (const auto& [name, node] : nodes_) {
    node->watch().scan();
    node->node().kv().check_invariants();
  }
  for (const auto& [name, gateway] : gateways_) {
    for (const gateway::Node* node : gateway->membership().nodes()) {
      constexpr std::uint32_t kImpossible = 100'000;  // an unsigned count that went below zero
      if (node->credits_used > plan_.config.prefill.credits ||
          node->sequences_given > kImpossible) {
        world_.fail(fmt::format("{}: on {} it holds {} of {} credits, {} sequences",
                                name,
                                node->name,
                                node->credits_used,
                                plan_.config.prefill.credits,
                                node->sequences_given));
      }
    }
  }
  const Duration limit = plan_.tracker.request_timeout + seconds(2);
  for (const auto& client : clients_) {
    if (client->has_started() && !client->is_over() && world_.now() - client->started() > limit) {
      world_.fail(fmt::format("request {} does not end, although its time is over",
                              client->plan().request.id.value));
    }
  }
}

}  // namespace baton::sim
