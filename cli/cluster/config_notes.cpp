#include "cli/cluster/config_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace baton::cli {
namespace {

std::string_view port_of(std::string_view address) {
  return address.substr(address.rfind(':') + 1);
}

}  // namespace

std::string gateway_port_note(const ClusterConfig& config) {
  const std::string& listen = config.gateway.control_listen;
  const auto& gateways = config.cluster.gateways;
  if (port_of(listen) == "0" || std::ranges::any_of(gateways, [&](const std::string& address) {
        return port_of(address) == port_of(listen);
      })) {
    return {};
  }
  return fmt::format(
      "the gateway takes nodes at port {} (gateway.control_listen), but nodes dial {} "
      "(cluster.gateways)",
      port_of(listen),
      fmt::join(gateways, ", "));
}

}  // namespace baton::cli
