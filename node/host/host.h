// The process around one role: reads the command line and the configuration, loads the model,
// starts the threads, runs until a signal, and takes everything down in order.
//
// Threads: control (all logic), engine (steps), the transport's reactor, the admin server's few, a
// copier where kv.file_tier is set; main only waits. Exit status: 0 stopped by a signal; 1 could
// not start; 2 wrong arguments or configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "node/role.h"

namespace baton::node {

struct RoleInfo {
  std::string program;      // baton-decode
  std::string role;         // decode
  std::string description;  // one line for --help
  std::function<const std::vector<NodeEntry>*(const ClusterConfig&)> pool;
  std::function<std::uint32_t(const ClusterConfig&)> max_step_tokens;
  std::function<std::unique_ptr<Role>(RoleDeps)> make;
  bool may_draft = false;  // loads the draft model, where decode.speculation names one
};

int run_node(int argc, char** argv, const RoleInfo& info);

}  // namespace baton::node
