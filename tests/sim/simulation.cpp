#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace baton::sim {
namespace {

constexpr Duration kStartLimit = seconds(20);
constexpr std::uint64_t kWatchPeriod = 64;  // tasks between two looks at everything
constexpr std::uint64_t kFreshIds = 1'000'000;

void add_data(DataCounts& to, const DataCounts& more) {
  to.messages += more.messages;
  to.bytes += more.bytes;
  to.slow += more.slow;
  to.dropped += more.dropped;
  to.duplicated += more.duplicated;
  to.late += more.late;
  to.partial += more.partial;
  to.hung += more.hung;
  to.corrupted += more.corrupted;
  to.mismatches += more.mismatches;
  to.after_close += more.after_close;
  to.refused += more.refused;
}

std::string list(const std::map<std::string, std::uint64_t>& counts) {
  std::string all;
  for (const auto& [name, count] : counts) {
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", count, name);
  }
  return all.empty() ? "none" : all;
}

}  // namespace

void SimCounts::add(const SimCounts& other) {
  seeds += other.seeds;
  requests += other.requests;
  for (const auto& [name, count] : other.ends) {
    ends[name] += count;
  }
  for (const auto& [name, count] : other.errors) {
    errors[name] += count;
  }
  attempts += other.attempts;
  failovers += other.failovers;
  kills += other.kills;
  drains += other.drains;
  stops += other.stops;
  cuts += other.cuts;
  partitions += other.partitions;
  add_data(data, other.data);
  tasks += other.tasks;
  virtual_seconds += other.virtual_seconds;
}

std::string SimCounts::to_string() const {
  return fmt::format(
      "{} seeds, {:.0f} s of virtual time, {} tasks\n"
      "requests: {} ({}); {} took more than one attempt, {} failovers; errors: {}\n"
      "processes: {} killed, {} drained, {} stopped; network: {} connections cut, {} partitions\n"
      "data: {} messages ({:.1f} MiB landed), {} slow, {} dropped, {} twice, {} late, {} torn, {} "
      "hung, {} corrupted ({} digests differed); {} came to a closed inlet, {} were refused",
      seeds,
      virtual_seconds,
      tasks,
      requests,
      list(ends),
      attempts,
      failovers,
      list(errors),
      kills,
      drains,
      stops,
      cuts,
      partitions,
      data.messages,
      static_cast<double>(data.bytes) / (1 << 20),
      data.slow,
      data.dropped,
      data.duplicated,
      data.late,
      data.partial,
      data.hung,
      data.corrupted,
      data.mismatches,
      data.after_close,
      data.refused);
}

Simulation::Simulation(Plan plan, bool verbose)
    : plan_(std::move(plan)), world_(plan_.seed, verbose), cluster_(world_, plan_) {
  world_.set_watch(kWatchPeriod, [this] { cluster_.check(); });
}

bool Simulation::start() {
  if (!world_.run_until([this] { return cluster_.is_complete(); }, kStartLimit)) {
    world_.fail("not every node registers");
  }
  return !world_.has_failed();
}

void Simulation::begin_fault(const Fault& fault) {
  if (fault.tasks == 0) {
    return apply(fault);
  }
  // In the middle of what the target does then; or after a moment when it does nothing.
  const auto begun = std::make_shared<bool>(false);
  const auto once = [this, fault, begun] {
    if (!std::exchange(*begun, true) && !has_healed_) {
      apply(fault);
    }
  };
  if (SimNode* node = cluster_.node(fault.target)) {
    node->process().after_tasks(fault.tasks, once);
  }
  world_.outside().post_after(milliseconds(400), once);
}

void Simulation::apply(const Fault& fault) {
  const auto back = [this, fault] {
    if (!has_healed_) {
      cluster_.revive(fault.target);
    }
  };
  switch (fault.kind) {
    case FaultKind::Kill:
      cluster_.kill(fault.target);
      return world_.outside().post_after(fault.lasts, back);
    case FaultKind::Exit:
      cluster_.exit(fault.target);
      return world_.outside().post_after(fault.lasts, back);
    case FaultKind::Drain:
      cluster_.drain(fault.target, fault.limit);
      return world_.outside().post_after(fault.lasts, back);
    case FaultKind::Stop:
      cluster_.stop(fault.target);
      return world_.outside().post_after(fault.lasts,
                                         [this, fault] { cluster_.go_on(fault.target); });
    case FaultKind::CutControl:
      return cluster_.cut_control(fault.target, fault.other);
    case FaultKind::CutData:
      return cluster_.cut_data(fault.target, fault.other);
    case FaultKind::Partition:
      return cluster_.part(fault.target, fault.other, fault.lasts);
  }
}

bool Simulation::run() {
  cluster_.set_control_weather(plan_.control);
  cluster_.data().set_weather(plan_.data);
  if (plan_.waits_first && !start()) {
    return false;
  }
  for (const ClientPlan& client : plan_.clients) {
    world_.outside().post_after(client.at, [this, &client] { cluster_.submit(client); });
  }
  for (const Fault& fault : plan_.faults) {
    world_.outside().post_after(fault.at, [this, &fault] { begin_fault(fault); });
  }
  world_.run_for(plan_.horizon);
  return finish();
}

bool Simulation::is_allowed(const Client& client) const {
  const std::string& code = client.error().code;
  if (code == "timeout" || code == "queue_timeout") {
    return true;
  }
  if (code == "service_unavailable") {
    // It came before any node did: at the start, or at a gateway that was just started anew; or the
    // last pair is out because what it sent arrived changed.
    return !plan_.waits_first || plan_.data.corrupt > 0 ||
           std::ranges::any_of(plan_.faults, [&](const Fault& fault) {
             return fault.kind == FaultKind::Kill &&
                    fault.target == gateway_name(client.plan().gateway);
           });
  }
  const auto& limits = plan_.tracker.failover;
  return client.figures().failovers + 1 >= std::min(limits.max_node_losses, limits.max_faults);
}

void Simulation::check_ends() {
  for (const auto& client : cluster_.clients()) {
    if (client->end() == ClientEnd::Error && !is_allowed(*client)) {
      world_.fail(fmt::format("request {} ends with an error that nothing explains: {}: {}",
                              client->plan().request.id.value,
                              client->error().code,
                              client->error().message));
    }
  }
  if (plan_.is_calm()) {
    for (SimGateway* gateway : cluster_.gateways()) {
      if (gateway->membership().stats().lost > 0) {
        world_.fail("a false alarm: a gateway gave up a node and nothing was wrong");
      }
    }
  }
}

bool Simulation::finish() {
  if (world_.has_failed()) {
    return false;
  }
  world_.note("HEAL");
  has_healed_ = true;
  cluster_.set_control_weather({});
  cluster_.data().set_weather({});
  for (const std::string& name : cluster_.names()) {
    cluster_.revive(name);
  }
  // A pair whose digests differed stays out until one of its nodes is started anew.
  for (SimGateway* gateway : cluster_.gateways()) {
    for (const auto& pair : gateway->health().barred()) {
      cluster_.kill(pair.decode.name);
      cluster_.revive(pair.decode.name);
    }
  }
  world_.run_for(cluster_.longest_hold());  // what was held up keeps its time
  const auto all_over = [this] {
    return std::ranges::all_of(cluster_.clients(), [](const auto& c) { return c->is_over(); });
  };
  const Duration limit = plan_.tracker.request_timeout + plan_.tracker.queue_timeout;
  if (!world_.run_until(all_over, limit)) {
    world_.fail("not every request ends");
    return false;
  }
  if (!world_.run_until([this] { return cluster_.is_complete(); }, kStartLimit)) {
    world_.fail("not every node comes back after everything has healed");
    return false;
  }
  // Also between themselves: those that missed each other's heartbeats notice it by then.
  world_.run_for(plan_.config.cluster.heartbeat * (plan_.config.cluster.dead_after + 2) +
                 seconds(1));
  check_ends();
  // A healed cluster serves everybody.
  std::vector<std::shared_ptr<Client>> fresh;
  for (std::size_t i = 0; i < plan_.gateways * 3; ++i) {
    ClientPlan client;
    client.gateway = i % plan_.gateways;
    client.request = plan_request(kFreshIds + i, 5 + i, 3, plan_.seed + i);
    fresh.push_back(cluster_.submit(client));
  }
  if (!world_.run_until(all_over, limit)) {
    world_.fail("a request on the healed cluster does not end");
  }
  for (const auto& client : fresh) {
    if (!world_.has_failed() && client->end() != ClientEnd::Whole) {
      world_.fail(fmt::format("a request on the healed cluster ends otherwise: {} {}",
                              to_string(client->end()),
                              client->end() == ClientEnd::Error ? client->error().message : ""));
    }
  }
  std::string left = "?";
  const TimePoint quiet = world_.now() + plan_.data.late_most + seconds(31);
  while (!world_.has_failed() && !left.empty() && world_.now() < quiet) {
    world_.run_for(milliseconds(500));
    left = cluster_.leftovers();
  }
  if (!left.empty()) {
    world_.fail("not all is given back after a quiet time: " + left);
  }
  if (plan_.data.late > 0) {
    world_.run_for(plan_.data.late_most);  // what is still under way lands on an idle cluster
  }
  cluster_.check();
  for (SimNode* node : cluster_.nodes()) {
    auto& kv = node->node().kv();
    kv.index().evict(kv.pool().total());
    if (kv.pool().free() != kv.pool().total()) {
      world_.fail(fmt::format("{}: {} of {} blocks are free once nothing is cached",
                              node->process().name(),
                              kv.pool().free(),
                              kv.pool().total()));
    }
  }
  return !world_.has_failed();
}

SimCounts Simulation::counts() const {
  SimCounts counts;
  counts.seeds = 1;
  for (const auto& client : cluster_.clients()) {
    ++counts.requests;
    ++counts.ends[std::string(to_string(client->end()))];
    counts.attempts += client->figures().attempts > 1 ? 1 : 0;
    counts.failovers += client->figures().failovers;
    if (client->end() == ClientEnd::Error) {
      ++counts.errors[client->error().code];
    }
  }
  counts.kills = cluster_.kills;
  counts.drains = cluster_.drains;
  counts.stops = cluster_.stops;
  counts.cuts = cluster_.cuts;
  counts.partitions = cluster_.partitions;
  counts.data = const_cast<Cluster&>(cluster_).data().counts();
  counts.tasks = world_.num_tasks();
  counts.virtual_seconds = std::chrono::duration<double>(world_.elapsed()).count();
  return counts;
}

}  // namespace baton::sim
