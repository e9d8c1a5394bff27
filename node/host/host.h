// The process around a role: reads the command line and the configuration, loads the model, starts
// the threads, runs until a signal, and takes everything down in order. A program with both roles
// can be asked for the other one: it takes everything down as for a signal and executes itself
// anew, so that nothing of its old life is left but its process id and the pages of the packed
// weights, which the next life maps again.
//
// Threads: control (all logic), engine (steps), the transport's reactor, the admin server's few, a
// copier where kv.file_tier is set; main only waits. Exit status: 0 stopped by a signal; 1 could
// not start; 2 wrong arguments or configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/role.h"

namespace baton::node {

struct RoleInfo {
  std::string role;  // decode
  std::function<const std::vector<NodeEntry>*(const ClusterConfig&)> pool;
  std::function<std::uint32_t(const ClusterConfig&)> max_step_tokens;
  std::function<std::unique_ptr<Role>(RoleDeps)> make;
  bool may_draft = false;  // loads the draft model, where decode.speculation names one
};

struct NodeProgram {
  std::string name;             // baton-decode
  std::string description;      // one line for --help
  std::vector<RoleInfo> roles;  // those it can run; not empty
};

int run_node(int argc, char** argv, const NodeProgram& program);

}  // namespace baton::node
