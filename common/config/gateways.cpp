#include "common/config/gateways.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"
#include "common/config/schema.h"
#include "common/config/text_rules.h"

namespace baton {
namespace {

// `address` with the host of another.
std::string at_host_of(const std::string& address, const std::string& host_of) {
  auto parsed = HostPort::parse(address);
  const auto host = HostPort::parse(host_of);
  if (!parsed || !host) {
    return address;
  }
  parsed->host = host->host;
  return parsed->to_string();
}

std::string number_name(std::size_t i) {
  return fmt::format("gateway-{}", i);
}

std::string default_name(const ClusterConfig& config, const std::string& host) {
  const auto& gateways = config.cluster.gateways;
  if (gateways.size() <= 1) {
    return GatewaySection().name;
  }
  const auto own = std::ranges::find(gateways, config.gateway.control_listen);
  if (own != gateways.end()) {
    return number_name(static_cast<std::size_t>(own - gateways.begin()));
  }
  const std::string short_host = host.substr(0, host.find('.'));
  return short_host.starts_with("gateway") ? short_host : "gateway-" + short_host;
}

}  // namespace

std::vector<GatewayEntry> gateways_of(const ClusterConfig& config) {
  const GatewaySection& own = config.gateway;
  if (!own.pool.empty()) {
    return own.pool;
  }
  const auto& dialled = config.cluster.gateways;
  if (dialled.size() <= 1) {
    return {{GatewaySection().name, own.listen, own.control_listen, own.admin_listen}};
  }
  std::vector<GatewayEntry> all;
  for (const std::string& address : dialled) {
    GatewayEntry entry{number_name(all.size()), own.listen, own.control_listen, own.admin_listen};
    if (address != own.control_listen) {
      entry = {entry.name,
               at_host_of(own.listen, address),
               address,
               at_host_of(own.admin_listen, address)};
    }
    all.push_back(std::move(entry));
  }
  return all;
}

std::string admin_address(const GatewayEntry& gateway) {
  const auto listens = HostPort::parse(gateway.admin_listen);
  return listens && listens->is_everywhere()
             ? at_host_of(gateway.admin_listen, gateway.control_listen)
             : gateway.admin_listen;
}

Result<ClusterConfig> as_gateway(ClusterConfig config,
                                 const std::string& name,
                                 const std::string& host) {
  GatewaySection& section = config.gateway;
  if (section.pool.empty()) {
    section.name = name.empty() ? default_name(config, host) : name;
    if (const auto fault = fault_of(section.name, text_rules::kName)) {
      return fail(ErrorCode::InvalidConfig, "--name: " + *fault);
    }
    return config;
  }
  std::vector<std::string> names;
  for (const GatewayEntry& entry : section.pool) {
    names.push_back(entry.name);
  }
  const auto found =
      name.empty() && names.size() == 1 ? names.begin() : std::ranges::find(names, name);
  if (found == names.end()) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("gateway.pool has {}; --name must be one of: {}",
                            name.empty() ? "several gateways" : "no gateway '" + name + "'",
                            fmt::join(names, ", ")));
  }
  const GatewayEntry& entry = section.pool[static_cast<std::size_t>(found - names.begin())];
  section.name = entry.name;
  section.listen = entry.listen;
  section.control_listen = entry.control_listen;
  section.admin_listen = entry.admin_listen;
  return config;
}

}  // namespace baton
