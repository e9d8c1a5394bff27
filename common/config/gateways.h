// The gateways of a cluster: what each is called and where it listens.
//
// Without gateway.pool a cluster.gateways of one address means one gateway, "gateway", and several
// mean gateway-0, gateway-1, … in their order, which differ by control_listen.
//
// Thread: pure functions. Failure: InvalidConfig for a name that gateway.pool lacks.
#pragma once

#include <string>
#include <vector>

#include "common/config/cluster_config.h"

namespace baton {

// All of them. Without gateway.pool those of other hosts are taken to listen at the same ports.
std::vector<GatewayEntry> gateways_of(const ClusterConfig& config);

// Where others find its /metrics: where it listens at every address, the host that nodes dial.
std::string admin_address(const GatewayEntry& gateway);

// The configuration as the gateway of this name has it: its name and addresses in the section
// `gateway`. Empty: the only one there is; without gateway.pool the one of cluster.gateways that
// has this control_listen, else gateway-HOST after `host`.
Result<ClusterConfig> as_gateway(ClusterConfig config,
                                 const std::string& name,
                                 const std::string& host);

}  // namespace baton
