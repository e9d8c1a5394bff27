// What is allowed in a configuration but is most likely a mistake.
//
// Owner: commands that read configurations. Thread: any. Failure: none.
#pragma once

#include <string>

#include "common/config/cluster_config.h"

namespace baton::cli {

// Empty when nodes can find the gateway; else one line for people. Behind a port mapping the ports
// may differ for good reason, so it is no error.
std::string gateway_port_note(const ClusterConfig& config);

}  // namespace baton::cli
