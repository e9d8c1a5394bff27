#include "transfer/ucx/settings.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace baton::transfer {
namespace {

constexpr std::string_view kPrefix = "UCX_";
constexpr std::array<std::string_view, 9> kShippedNames{"USE_MT_MUTEX",
                                                        "KEEPALIVE_INTERVAL",
                                                        "MM_ERROR_HANDLING",
                                                        "RC_TIMEOUT",
                                                        "RC_RETRY_COUNT",
                                                        "IB_PCI_RELAXED_ORDERING",
                                                        "UD_VERBS_ETH_DGID_CHECK",
                                                        "TCP_TX_SEG_SIZE",
                                                        "TCP_RX_SEG_SIZE"};
constexpr const char* kRdmaDevices = "/sys/class/infiniband";

bool is_set(const std::string& name) {
  return std::getenv((std::string(kPrefix) + name).c_str()) != nullptr;
}

// Accepts a name with or without the prefix; returns it without.
Result<std::string> bare_name(const std::string& name) {
  std::string bare = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  const bool is_plain = !bare.empty() && std::all_of(bare.begin(), bare.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!is_plain) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("transfer.ucx: \"{}\" is not the name of a UCX setting", name));
  }
  return bare;
}

// `lanes` as UCX_TLS names them; empty: all.
bool may_use_tcp(const std::string& lanes) {
  const bool is_negated = lanes.starts_with('^');
  std::istringstream names(is_negated ? lanes.substr(1) : lanes);
  bool names_tcp = lanes.empty();
  for (std::string name; std::getline(names, name, ',');) {
    names_tcp |= name == "tcp" || name == "all";
  }
  return names_tcp != is_negated;
}

// Soft-RoCE ("rxe") describes itself so.
bool is_soft_roce(const std::string& device) {
  std::ifstream file(fmt::format("{}/{}/node_desc", kRdmaDevices, device));
  std::string description;
  return std::getline(file, description) && description.starts_with("rxe");
}

// UCX only warns about a device that is not there, and then takes another lane. Names are
// separated by commas and may carry a port ("mlx5_0:1"); "all" and "^…" are UCX's own words.
Status check_devices(const std::string& network) {
  std::istringstream names(network);
  for (std::string name; std::getline(names, name, ',');) {
    if (network.starts_with('^') || name == "all") {
      return {};
    }
    const std::string device = name.substr(0, name.find(':'));
    std::error_code ignored;
    if (device.empty() || device.find('/') != std::string::npos ||
        (!std::filesystem::exists("/sys/class/net/" + device, ignored) &&
         !std::filesystem::exists("/sys/class/infiniband/" + device, ignored))) {
      return fail(ErrorCode::InvalidConfig,
                  fmt::format("transfer.network: this machine has no interface '{}'", name));
    }
  }
  return {};
}

// What is shipped. A setting of a component that is not used would make UCX warn, so each goes
// only where it means something.
UcxSettings shipped(const TransportOptions& options) {
  UcxSettings settings;
  // UCX's own thread shares a lock with the data thread. As a spin lock it costs a whole slice of
  // the scheduler, 4 ms, whenever its holder has lost the processor to who waits for it.
  settings.emplace_back("USE_MT_MUTEX", "y");
  if (options.transport != "rdma") {
    // A dead peer on shared memory is only found by keepalive. Over verbs alone it finds nothing
    // that the retries and the control connection do not find before.
    settings.emplace_back("KEEPALIVE_INTERVAL", "200ms");
  }
  if (options.transport == "auto" || options.transport == "shm") {
    // Without it shared memory has no peer error handling, and UCX falls back to TCP in silence.
    settings.emplace_back("MM_ERROR_HANDLING", "y");
  }
  const auto devices = rdma_devices();
  if ((options.transport == "auto" || options.transport == "rdma") && !devices.empty()) {
    // A lost packet is sent again after 100 ms and the peer is given up after 5 such: UCX's own
    // values hold on for most of a minute.
    settings.emplace_back("RC_TIMEOUT", "100ms");
    settings.emplace_back("RC_RETRY_COUNT", "5");
    settings.emplace_back("IB_PCI_RELAXED_ORDERING", "try");
    if (std::any_of(devices.begin(), devices.end(), is_soft_roce)) {
      // Soft-RoCE leaves a field unset that UCX 1.13 reads, and no connection comes about.
      settings.emplace_back("UD_VERBS_ETH_DGID_CHECK", "n");
    }
  }
  if (options.transport == "auto" || options.transport == "tcp") {
    // UCX's own 8 KiB cut every message in as many system calls. Measured on a loopback with 1.13,
    // active messages of 64 KiB and 1 MiB: 1.3 to 1.6 times as fast with 256 KiB, with 512
    // once more 1.2 times at 1 MiB.
    settings.emplace_back("TCP_TX_SEG_SIZE", "512k");
    settings.emplace_back("TCP_RX_SEG_SIZE", "512k");
  }
  return settings;
}

}  // namespace

bool is_shipped_setting(std::string_view variable) {
  return variable.starts_with(kPrefix) &&
         std::find(kShippedNames.begin(), kShippedNames.end(), variable.substr(kPrefix.size())) !=
             kShippedNames.end();
}

std::vector<std::string> rdma_devices() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kRdmaDevices, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<UcxSettings> context_settings(const TransportOptions& options) {
  UcxSettings settings;
  std::string lanes;
  if (options.transport == "tcp") {
    lanes = "tcp";
  } else if (options.transport == "shm") {
    lanes = "posix,sysv,cma";
  } else if (options.transport == "rdma") {
    lanes = "ib";  // UCX's word for rc, dc and ud, of which it takes the best
  } else if (options.transport != "auto") {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("transfer.transport: \"{}\" is none of auto, tcp, shm, rdma",
                            options.transport));
  }
  if (!lanes.empty() && !is_set("TLS")) {
    settings.emplace_back("TLS", lanes);
  }
  if (!options.network.empty() && !is_set("NET_DEVICES")) {
    BATON_TRY(check_devices(options.network));
    settings.emplace_back("NET_DEVICES", options.network);
  }
  return settings;
}

Result<PutPaths> put_paths(const TransportOptions& options) {
  if (options.path == "am") {
    return PutPaths{};
  }
  if (options.path != "auto" && options.path != "put") {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("transfer.path: \"{}\" is none of auto, am, put", options.path));
  }
  if (options.path == "put" && options.transport == "tcp") {
    return fail(
        ErrorCode::InvalidConfig,
        "transfer.path: put is refused with transfer.transport: tcp, since over TCP nothing "
        "checks where a put goes; use am there, or another transport");
  }
  const char* set = std::getenv("UCX_TLS");  // NOLINT(concurrency-mt-unsafe): see apply_environment
  BATON_ASSIGN(const UcxSettings settings, context_settings(options));
  std::string lanes = set != nullptr ? set : "";
  for (const auto& [name, value] : settings) {
    if (name == "TLS") {
      lanes = value;
    }
  }
  PutPaths paths;
  paths.rdma = options.transport != "shm" && !rdma_devices().empty() && !may_use_tcp(lanes);
  paths.shm = options.path == "put" && options.transport != "rdma";
  return paths;
}

Status apply_environment(const TransportOptions& options) {
  UcxSettings settings;
  for (const auto& [name, value] : options.ucx) {
    BATON_ASSIGN(std::string bare, bare_name(name));
    settings.emplace_back(std::move(bare), value);
  }
  for (auto& one : shipped(options)) {
    settings.push_back(std::move(one));
  }
  for (const auto& [name, value] : settings) {
    const std::string variable = std::string(kPrefix) + name;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): called before other threads, see the header
    if (::setenv(variable.c_str(), value.c_str(), 0) != 0) {
      return fail(ErrorCode::InvalidConfig, fmt::format("cannot set {}", variable));
    }
  }
  return {};
}

}  // namespace baton::transfer
