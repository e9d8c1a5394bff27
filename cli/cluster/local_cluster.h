// A whole cluster of cluster.yaml as child processes of this one: its gateways and every node of
// both pools. Used by `baton up` and by the benchmarks.
//
// Owner: a command. Thread: the one that started it (children die with that thread). Failure:
// `start` says what kept a process from starting; `wait_ready` names the process that died, how,
// and its last log lines. The destructor stops everything.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/free_port.h"
#include "cli/http/api_client.h"
#include "cli/process/child_process.h"
#include "common/base/error.h"
#include "common/base/host_port.h"
#include "common/config/cluster_config.h"

namespace baton::cli {

struct LocalClusterOptions {
  std::string config_file;
  std::vector<std::string> overrides;  // key=value
  std::string bin_folder;              // where baton-gateway and the node programs are
  std::string run_folder;              // logs and commands.txt; made when missing
  bool free_ports = false;             // replace busy ports of the gateway instead of failing
  std::vector<std::pair<std::string, std::string>> environment;
};

class LocalCluster {
 public:
  struct Member {
    std::string name;  // gateway, or the name in its pool
    std::string role;  // gateway, prefill, decode: at the start
    std::vector<std::string> command;
    std::string log;
    ChildProcess process;
    std::optional<ExitState> exit;
  };
  // Runs between looks at the cluster with a line for people; true from it gives up waiting.
  using Waiting = std::function<bool(const std::string& line)>;

  static Result<std::unique_ptr<LocalCluster>> start(const LocalClusterOptions& options);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Returns once the first gateway serves and every node of the configuration is registered. It
  // asks that gateway's admin listener, which wants neither a certificate for this name nor a key.
  Status wait_ready(std::chrono::milliseconds limit, const Waiting& waiting);
  // Members that ended since the last look, already reaped.
  std::vector<const Member*> newly_dead();
  const std::vector<Member>& members() const { return members_; }
  const std::string& run_folder() const { return run_folder_; }
  // Of the first gateway; at the loopback address where it listens at every address.
  std::string base_url() const { return base_url_; }
  // Of its dashboard and metrics.
  std::string admin_url() const { return admin_url_; }
  // "name: exit status 1; last lines of LOG: …" for a member that ended.
  static std::string obituary(const Member& member);
  // SIGTERM to all, SIGKILL to who is left after `grace`. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  LocalCluster() = default;
  // Chooses the addresses of the i-th gateway; those that differ become overrides.
  Status place_gateway(const ClusterConfig& config,
                       std::size_t i,
                       bool free_ports,
                       std::vector<std::string>& overrides);
  // The address to use for `key`: as configured, or with a free port when it is 0 or taken and that
  // is allowed.
  Result<HostPort> choose_address(const std::string& key, const std::string& text, bool free_ports);
  Status add(const LocalClusterOptions& options,
             const std::string& name,
             const std::string& role,
             const std::string& program,
             const std::vector<std::string>& overrides);
  // What is still missing, for people; empty when the cluster is ready.
  std::string missing(const json::value& dashboard) const;

  std::vector<HeldAddress> held_;  // of gateways
  std::vector<Member> members_;
  std::string base_url_;  // of the gateway's API
  std::string admin_url_;
  std::string run_folder_;
};

// The folder of the running program.
std::string program_folder();

}  // namespace baton::cli
