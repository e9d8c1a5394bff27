#include "cli/cluster/local_cluster.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/http/api_client.h"
#include "common/config/gateways.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{50};
constexpr std::size_t kObituaryLines = 12;

// Of a listener's address: one that this machine's programs can dial.
std::string dialled(HostPort address) {
  if (address.is_everywhere()) {
    address.host = address.host == "::" ? "::1" : "127.0.0.1";
  }
  return address.to_string();
}

// Names of the nodes that are connected.
std::vector<std::string> registered_nodes(const json::value& dashboard) {
  std::vector<std::string> names;
  json::error_code absent;
  const json::value* nodes = dashboard.find_pointer("/status/nodes", absent);
  if (nodes != nullptr && nodes->is_array()) {
    for (const json::value& node : nodes->as_array()) {
      if (const json::value* name = node.find_pointer("/name", absent);
          name != nullptr && name->is_string()) {
        names.emplace_back(name->as_string());
      }
    }
  }
  return names;
}

}  // namespace

std::string program_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(const LocalClusterOptions& options) {
  BATON_ASSIGN(const ClusterConfig config, load_config(options.config_file, options.overrides));
  if (config.decode.pool.empty()) {
    return fail(ErrorCode::InvalidConfig,
                options.config_file + ": decode.pool: a cluster needs at least one decode node");
  }
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  // One from the section, or each of the pool.
  const std::size_t num_gateways = std::max<std::size_t>(config.gateway.pool.size(), 1);
  std::vector<std::string> overrides = options.overrides;
  for (std::size_t i = 0; i < num_gateways; ++i) {
    BATON_TRY(cluster->place_gateway(config, i, options.free_ports, overrides));
  }
  std::error_code error;
  fs::create_directories(options.run_folder, error);
  if (error) {
    return fail(ErrorCode::IoError,
                fmt::format("cannot make {}: {}", options.run_folder, error.message()));
  }
  cluster->run_folder_ = options.run_folder;
  cluster->members_.reserve(config.prefill.pool.size() + config.decode.pool.size() + num_gateways);
  for (std::size_t i = 0; i < num_gateways; ++i) {
    const bool is_pool = !config.gateway.pool.empty();
    BATON_ASSIGN(const ClusterConfig named,
                 as_gateway(config, is_pool ? config.gateway.pool[i].name : "", "local"));
    BATON_TRY(cluster->add(options, named.gateway.name, "gateway", "baton-gateway", overrides));
  }
  const auto program = [](const NodeEntry& node, const char* of_role) {
    return node.any_role ? "baton-node" : of_role;
  };
  for (const NodeEntry& node : config.decode.pool) {
    BATON_TRY(cluster->add(options, node.name, "decode", program(node, "baton-decode"), overrides));
  }
  for (const NodeEntry& node : config.prefill.pool) {
    BATON_TRY(
        cluster->add(options, node.name, "prefill", program(node, "baton-prefill"), overrides));
  }
  std::ofstream commands(options.run_folder + "/commands.txt");
  for (const Member& member : cluster->members_) {
    commands << fmt::format(
        "{}\t{}\t{}\n", member.name, member.process.pid(), fmt::join(member.command, " "));
  }
  return cluster;
}

Status LocalCluster::place_gateway(const ClusterConfig& config,
                                   std::size_t i,
                                   bool free_ports,
                                   std::vector<std::string>& overrides) {
  const bool is_pool = !config.gateway.pool.empty();
  const std::string section = is_pool ? fmt::format("gateway.pool.{}", i) : "gateway";
  const GatewayEntry entry = is_pool ? config.gateway.pool[i]
                                     : GatewayEntry{"",
                                                    config.gateway.listen,
                                                    config.gateway.control_listen,
                                                    config.gateway.admin_listen};
  const auto choose = [&](const char* key, const std::string& text) -> Result<HostPort> {
    BATON_ASSIGN(const HostPort address,
                 choose_address(fmt::format("{}.{}", section, key), text, free_ports));
    if (address.to_string() != text) {
      overrides.push_back(fmt::format("{}.{}={}", section, key, address.to_string()));
    }
    return address;
  };
  BATON_ASSIGN(const HostPort api, choose("listen", entry.listen));
  BATON_ASSIGN(const HostPort control, choose("control_listen", entry.control_listen));
  BATON_ASSIGN(const HostPort admin, choose("admin_listen", entry.admin_listen));
  if (control.to_string() != entry.control_listen) {
    overrides.push_back(fmt::format("cluster.gateways.{}={}", i, control.to_string()));
  }
  if (i == 0) {
    base_url_ = (config.gateway.tls.certificate.empty() ? "http://" : "https://") + dialled(api);
    admin_url_ = "http://" + dialled(admin);
  }
  return {};
}

Result<HostPort> LocalCluster::choose_address(const std::string& key,
                                              const std::string& text,
                                              bool free_ports) {
  BATON_ASSIGN(HostPort address, HostPort::parse(text));
  if (address.port != 0 && !is_port_busy(address.host, address.port)) {
    return address;
  }
  if (address.port != 0 && !free_ports) {
    return fail(ErrorCode::IoError,
                fmt::format("{} ({}) is in use by another process; choose another with --set "
                            "{}={}:PORT, or let --free-ports choose",
                            text,
                            key,
                            key,
                            address.host));
  }
  BATON_ASSIGN(HeldAddress held, HeldAddress::hold(address.host));
  held_.push_back(std::move(held));
  return held_.back().address();
}

Status LocalCluster::add(const LocalClusterOptions& options,
                         const std::string& name,
                         const std::string& role,
                         const std::string& program,
                         const std::vector<std::string>& overrides) {
  ChildOptions child;
  child.command = {
      options.bin_folder + "/" + program, "--config", options.config_file, "--name", name};
  for (const std::string& override_text : overrides) {
    child.command.insert(child.command.end(), {"--set", override_text});
  }
  child.output_file = options.run_folder + "/" + name + ".log";
  child.append = false;
  child.environment = options.environment;
  BATON_ASSIGN(ChildProcess process, ChildProcess::start(child));
  members_.push_back(
      Member{name, role, child.command, child.output_file, std::move(process), std::nullopt});
  return {};
}

LocalCluster::~LocalCluster() {
  stop(milliseconds{5'000});
}

Status LocalCluster::wait_ready(milliseconds limit, const Waiting& waiting) {
  ApiClient client(admin_url(), ApiClient::Server::Child);
  const auto end = steady_clock::now() + limit;
  while (true) {
    for (const Member* member : newly_dead()) {
      return fail(ErrorCode::Unavailable, obituary(*member));
    }
    const Result<json::value> dashboard = client.get("/dashboard/data");
    const std::string line =
        dashboard ? missing(*dashboard)
                  : fmt::format("waiting for the gateway: {}", dashboard.error().message);
    if (line.empty()) {
      return {};
    }
    if (waiting(line)) {
      return fail(ErrorCode::Cancelled, "stopped while " + line);
    }
    if (steady_clock::now() > end) {
      return fail(
          ErrorCode::Timeout,
          fmt::format(
              "not ready after {} s: {}; logs are in {}", limit.count() / 1000, line, run_folder_));
    }
    members_.front().process.wait(kLook);
  }
}

std::string LocalCluster::missing(const json::value& dashboard) const {
  const std::vector<std::string> here = registered_nodes(dashboard);
  std::vector<std::string> absent;
  for (const Member& member : members_) {
    if (member.role != "gateway" && std::ranges::find(here, member.name) == here.end()) {
      absent.push_back(member.name);
    }
  }
  const auto nodes = static_cast<std::size_t>(
      std::ranges::count_if(members_, [](const Member& m) { return m.role != "gateway"; }));
  if (!absent.empty()) {
    return fmt::format("{} of {} nodes registered; not yet {}",
                       nodes - absent.size(),
                       nodes,
                       fmt::join(absent, ", "));
  }
  json::error_code none;
  const json::value* ready = dashboard.find_pointer("/status/ready", none);
  return ready != nullptr && ready->is_bool() && ready->as_bool()
             ? std::string()
             : fmt::format("{} of {} nodes registered; no pair of them is ready", nodes, nodes);
}

std::vector<const LocalCluster::Member*> LocalCluster::newly_dead() {
  std::vector<const Member*> dead;
  for (Member& member : members_) {
    if (!member.exit) {
      member.exit = member.process.poll_exit();
      if (member.exit) {
        dead.push_back(&member);
      }
    }
  }
  return dead;
}

std::string LocalCluster::obituary(const Member& member) {
  return fmt::format("{} (pid {}) ended: {}\n---- last lines of {}\n{}\n----",
                     member.name,
                     member.process.pid(),
                     member.exit ? member.exit->to_string() : "it still runs",
                     member.log,
                     last_lines(member.log, kObituaryLines));
}

void LocalCluster::stop(milliseconds grace) {
  const auto end = steady_clock::now() + grace;
  for (Member& member : members_) {
    if (!member.exit) {
      member.process.signal(SIGTERM);
    }
  }
  for (Member& member : members_) {
    if (member.exit) {
      continue;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    member.exit = member.process.wait(std::max(left, milliseconds{0}));
    if (!member.exit) {
      member.exit = member.process.stop(milliseconds{0});
    }
  }
}

}  // namespace baton::cli
