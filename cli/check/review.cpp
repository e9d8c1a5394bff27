#include "cli/check/review.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/config/catalogue.h"
#include "common/config/config_checks.h"
#include "common/config/hosts.h"
#include "kernels/ops.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShortestToken = 12;
constexpr std::uint64_t kMiB = 1U << 20U;
// Of the keys in configs/public.yaml.
constexpr std::array<std::string_view, 2> kExampleKeys{
    "6b28002379411358e1adf91f916a794e5f01c5ecb0424b82c3de97d88e45e9df",
    "ce37202f6edd600ab1715c1c52fa768ae85cafceb1e15e045ec32b5f460b7514"};

// What stands in examples for a secret.
bool is_placeholder(std::string token) {
  std::ranges::transform(
      token, token.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::any_of(
      std::array<std::string_view, 9>{"replace",
                                      "change",
                                      "example",
                                      "placeholder",
                                      "a-long-secret",
                                      "your",
                                      "todo",
                                      "development",
                                      "xxxx"},
      [&](std::string_view word) { return token.find(word) != std::string::npos; });
}

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    parts.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

class Review {
 public:
  Review(const ClusterConfig& config, const MachineFacts& machine)
      : config_(config), machine_(machine) {}

  std::vector<Finding> run() {
    nodes();
    reach();
    gpus();
    model();
    token();
    keys();
    tls();
    network();
    locked_memory();
    return std::move(found_);
  }

 private:
  void wrong(std::string key, std::string text) {
    found_.push_back({std::move(key), std::move(text), Finding::Weight::Wrong});
  }
  void before_start(std::string key, std::string text) {
    found_.push_back({std::move(key), std::move(text), Finding::Weight::BeforeStart});
  }

  void nodes() {
    if (config_.decode.pool.empty()) {
      wrong("decode.pool", "is empty: a cluster needs at least one decode node");
    }
  }

  // Prefill nodes of other hosts dial a decode node where it listens or says it does.
  void reach() {
    const bool has_other_hosts = !std::ranges::all_of(config_.cluster.gateways, is_loopback);
    for (const auto& [role, pool, others] :
         {std::tuple{"decode", &config_.decode.pool, &config_.prefill.pool},
          std::tuple{"prefill", &config_.prefill.pool, &config_.decode.pool}}) {
      for (std::size_t i = 0; i < pool->size() && has_other_hosts; ++i) {
        const NodeEntry& node = (*pool)[i];
        const bool listens = node.any_role || pool == &config_.decode.pool;
        if (listens && !others->empty() && node.advertise.empty() &&
            is_loopback(node.control_listen)) {
          found_.push_back({fmt::format("{}.pool.{}.control_listen", role, i),
                            fmt::format("{} is this host's alone, and cluster.gateways ({}) are "
                                        "not: prefill nodes on other hosts could not reach {}",
                                        node.control_listen,
                                        fmt::join(config_.cluster.gateways, ", "),
                                        node.name),
                            Finding::Weight::Doubtful});
        }
      }
    }
  }

  // The same reason is told once.
  void gpus() {
    std::set<std::string> told;
    for (const auto& [role, pool] :
         {std::pair{"prefill", &config_.prefill.pool}, std::pair{"decode", &config_.decode.pool}}) {
      for (std::size_t i = 0; i < pool->size() && machine_.lacks_cuda; ++i) {
        const EngineSection& engine = (*pool)[i].engine;
        std::string why = engine.backend == "cuda" ? machine_.lacks_cuda(engine) : std::string();
        if (!why.empty() && told.insert(why).second) {
          before_start(fmt::format("{}.pool.{}.engine.backend", role, i), std::move(why));
        }
      }
    }
  }

  void model() {
    const ModelSection& model = config_.model;
    if (!model.path.empty()) {
      if (!machine_.can_read(model.path)) {
        wrong("model.path", fmt::format("there is no file {} to be read", model.path));
      }
    } else if (!machine_.models.empty() &&
               std::ranges::find(machine_.models, model.id) == machine_.models.end()) {
      wrong("model.id",
            fmt::format("'{}' is no model of the catalogue ({}); set model.path for another",
                        model.id,
                        fmt::join(machine_.models, ", ")));
    }
  }

  void token() {
    const ClusterSection& cluster = config_.cluster;
    // Where every address is a loopback one and no stranger is expected, any token will do.
    const bool is_private = stays_on_one_host(config_) && !config_.gateway.has_keys();
    if (!cluster.token_file.empty() || is_private) {
      return;
    }
    if (is_placeholder(cluster.token)) {
      before_start("cluster.token",
                   "is a placeholder that everybody knows; make one with `openssl rand -hex 16`");
    } else if (cluster.token.size() < kShortestToken) {
      before_start("cluster.token",
                   fmt::format("has {} characters and may be guessed; make one with `openssl rand "
                               "-hex 16`",
                               cluster.token.size()));
    }
  }

  void keys() {
    const GatewaySection& gateway = config_.gateway;
    for (std::size_t i = 0; i < gateway.keys.size(); ++i) {
      if (std::ranges::find(kExampleKeys, gateway.keys[i].sha256) != kExampleKeys.end()) {
        before_start(fmt::format("gateway.keys.{}.sha256", i),
                     "is the hash of an example that everybody knows; `baton key new` makes a key");
      }
    }
    if (gateway.keys_file.empty()) {
      return;
    }
    if (!machine_.can_read(gateway.keys_file)) {
      return before_start("gateway.keys_file",
                          fmt::format("there is no file {} to be read", gateway.keys_file));
    }
    const auto more = load_api_keys(gateway.keys_file);
    if (!more) {
      return wrong("gateway.keys_file", more.error().message);
    }
    std::vector<ApiKeyEntry> all = gateway.keys;
    all.insert(all.end(), more->begin(), more->end());
    for (const ConfigProblem& problem : check_api_keys(all, "keys")) {
      wrong("gateway.keys_file", "together with gateway.keys: " + problem.text);
    }
  }

  void tls() {
    const TlsSection& tls = config_.gateway.tls;
    const ControlTlsSection& control = config_.cluster.tls;
    for (const auto& [key, path] : {std::pair{"gateway.tls.certificate", &tls.certificate},
                                    std::pair{"gateway.tls.key", &tls.key},
                                    std::pair{"cluster.tls.certificate", &control.certificate},
                                    std::pair{"cluster.tls.key", &control.key},
                                    std::pair{"cluster.tls.authority", &control.authority}}) {
      if (!path->empty() && !machine_.can_read(*path)) {
        before_start(key, fmt::format("there is no file {} to be read", *path));
      }
    }
  }

  void network() {
    for (const std::string& name : parts_of(config_.transfer.network)) {
      const std::string device = name.substr(0, name.find(':'));  // mlx5_0:1 is a port of mlx5_0
      if (std::ranges::find(machine_.interfaces, device) == machine_.interfaces.end()) {
        before_start("transfer.network",
                     fmt::format("there is no interface '{}'; there are {}",
                                 name,
                                 fmt::join(machine_.interfaces, ", ")));
      }
    }
  }

  void locked_memory() {
    const std::uint64_t needed = config_.kv.arena_mb * kMiB;
    if (config_.transfer.transport == "rdma" && machine_.lockable_bytes &&
        *machine_.lockable_bytes < needed) {
      before_start("kv.arena_mb",
                   fmt::format("RDMA locks {} MiB and this process may lock {}; raise the limit "
                               "(LimitMEMLOCK=infinity, ulimit -l unlimited)",
                               config_.kv.arena_mb,
                               *machine_.lockable_bytes / kMiB));
    }
  }

  const ClusterConfig& config_;
  const MachineFacts& machine_;
  std::vector<Finding> found_;
};

}  // namespace

MachineFacts facts_of_this_machine() {
  MachineFacts facts;
  facts.can_read = [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; };
  for (const char* folder : {"/sys/class/net", "/sys/class/infiniband"}) {
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent)) {
      facts.interfaces.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(facts.interfaces);
  facts.lacks_cuda = [](const EngineSection& engine) {
    const auto made =
        kernels::make_cuda_backends({.device = engine.device, .ranks = engine.tensor_parallel});
    return made ? std::string() : made.error().message;
  };
  if (const auto models = load_catalogue(CataloguePlaces::from_environment().catalogue)) {
    for (const CatalogueModel& model : *models) {
      facts.models.push_back(model.name);
    }
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.lockable_bytes = limit.rlim_cur;
  }
  return facts;
}

std::vector<Finding> review(const ClusterConfig& config, const MachineFacts& machine) {
  return Review(config, machine).run();
}

}  // namespace baton::cli
