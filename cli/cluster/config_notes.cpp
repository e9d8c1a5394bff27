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
  const auto& gateways = config.cluster.gateways;
  const auto note = [&](std::string_view who, const std::string& key, const std::string& listen) {
    const bool is_dialled = std::ranges::any_of(
        gateways, [&](const std::string& address) { return port_of(address) == port_of(listen); });
    return port_of(listen) == "0" || is_dialled
               ? std::string()
               : fmt::format(
                     "{} takes nodes at port {} ({}.control_listen), but nodes dial {} "
                     "(cluster.gateways)",
                     who,
                     port_of(listen),
                     key,
                     fmt::join(gateways, ", "));
  };
  const auto& pool = config.gateway.pool;
  if (pool.empty()) {
    return note("the gateway", "gateway", config.gateway.control_listen);
  }
  std::string first;
  for (std::size_t i = 0; i < pool.size() && first.empty(); ++i) {
    first = note(pool[i].name, fmt::format("gateway.pool.{}", i), pool[i].control_listen);
  }
  return first;
}

}  // namespace baton::cli
