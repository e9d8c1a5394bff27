// Which keys differ between two readings of a configuration, for a process that reads it again.
// Lists of maps (pools of nodes, keys of clients, models) count as one key each.
//
// Thread: pure function. Failure: none.
#pragma once

#include <string>
#include <vector>

#include "common/config/cluster_config.h"

namespace baton {

// Their paths ("slo.tiers.default.ttft_ms"), in the order of docs/configuration.md.
std::vector<std::string> changed_keys(ClusterConfig before, ClusterConfig after);

}  // namespace baton
