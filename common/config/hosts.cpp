#include "common/config/hosts.h"

#include <algorithm>

#include "common/base/host_port.h"

namespace baton {

bool is_loopback(const std::string& address) {
  const auto parsed = HostPort::parse(address);
  return parsed &&
         (parsed->host.starts_with("127.") || parsed->host == "::1" || parsed->host == "localhost");
}

bool stays_on_one_host(const ClusterConfig& config) {
  const auto is_here = [](const NodeEntry& node) {
    return is_loopback(node.control_listen) &&
           (node.advertise.empty() || is_loopback(node.advertise));
  };
  return std::ranges::all_of(config.cluster.gateways, is_loopback) &&
         std::ranges::all_of(config.prefill.pool, is_here) &&
         std::ranges::all_of(config.decode.pool, is_here);
}

}  // namespace baton
