// What a configuration that is well formed would still trip over: a model that nobody knows, no
// nodes, a secret that everybody knows, files and interfaces that are not there.
//
// Owner: `baton check`. Thread: pure function over what it is told of the machine. Failure: none;
// findings come back as values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/config/cluster_config.h"

namespace baton::cli {

struct Finding {
  enum class Weight : std::uint8_t {
    Wrong,       // nothing would work with it
    Doubtful,    // allowed, and most likely a mistake
    BeforeStart  // wrong on the machine that runs it, which need not be this one
  };
  std::string key;  // where in the file
  std::string text;
  Weight weight = Weight::Wrong;
  bool operator==(const Finding&) const = default;
};

// What the review asks of the machine.
struct MachineFacts {
  std::function<bool(const std::string& path)> can_read;
  std::vector<std::string> interfaces;  // of the network, and RDMA devices
  // Why a node with this engine would have no GPU; empty: it would have. Unset: nobody knows.
  std::function<std::string(const EngineSection& engine)> lacks_cuda;
  std::vector<std::string> models;              // of the catalogue; empty: it is not there
  std::optional<std::uint64_t> lockable_bytes;  // RLIMIT_MEMLOCK; empty: no limit
};
MachineFacts facts_of_this_machine();

std::vector<Finding> review(const ClusterConfig& config, const MachineFacts& machine);

}  // namespace baton::cli
