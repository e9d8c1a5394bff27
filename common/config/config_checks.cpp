#include "common/config/config_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/host_port.h"

namespace baton {
namespace {

class Checker {
 public:
  explicit Checker(const ClusterConfig& config) : config_(config) {}

  std::vector<ConfigProblem> run() {
    check_nodes("prefill", config_.prefill.pool);
    check_nodes("decode", config_.decode.pool);
    check_gateways(config_.gateway.pool);
    check_float_paths();
    if (config_.cluster.dead_after <= config_.cluster.suspect_after) {
      add("cluster.dead_after", "must be above suspect_after");
    }
    const ControlTlsSection& tls = config_.cluster.tls;
    if (tls.certificate.empty() != tls.key.empty() ||
        tls.certificate.empty() != tls.authority.empty()) {
      add("cluster.tls", "certificate, key and authority belong together; one of them is missing");
    }
    if (config_.kv.block_tokens % 16 != 0) {
      add("kv.block_tokens",
          fmt::format("must be a multiple of 16, got {}", config_.kv.block_tokens));
    }
    if (!config_.kv.file_tier.empty() && !config_.kv.prefix_cache) {
      add("kv.file_tier", "needs kv.prefix_cache: true; it keeps what falls out of that cache");
    }
    if (config_.prefill.step_tokens < config_.prefill.chunk_tokens) {
      add("prefill.step_tokens",
          fmt::format("{} is below chunk_tokens, {}",
                      config_.prefill.step_tokens,
                      config_.prefill.chunk_tokens));
    }
    if (config_.transfer.path == "put" && config_.transfer.transport == "tcp") {
      add("transfer.path",
          "put cannot go over transfer.transport: tcp, where nothing would check what is written; "
          "use am or auto, or another transport");
    }
    if (config_.decode.speculation.mode == "draft" &&
        config_.decode.speculation.draft_model.empty()) {
      add("decode.speculation.mode", "draft needs decode.speculation.draft_model");
    }
    check_listeners();
    check_gateway(config_.gateway);
    check_pools(config_.pools);
    if (config_.prefill.pool.empty() && !config_.decode.pool.empty() &&
        config_.decode.local_prefill_max_tokens == 0) {
      problems_.push_back({"decode",
                           "decode.local_prefill_max_tokens: 0 needs at least one node in "
                           "prefill.pool; nothing could compute prompts"});
    }
    return std::move(problems_);
  }

 private:
  void add(const std::string& key, const std::string& sentence) {
    problems_.push_back({key, fmt::format("{}: {}", key, sentence)});
  }

  // Two programs cannot listen at one address. One that means "every interface", or any port, says
  // nothing: the programs may be on different hosts.
  void check_listeners() {
    std::map<std::string, std::string> keys;  // by address
    const auto listens = [&](const std::string& key, const std::string& address) {
      const auto parsed = HostPort::parse(address);
      if (!parsed || parsed->port == 0 || parsed->is_everywhere()) {
        return;
      }
      if (const auto [first, is_new] = keys.emplace(parsed->to_string(), key); !is_new) {
        add(key, fmt::format("{} is the address of {}, too", address, first->second));
      }
    };
    const GatewaySection& gateway = config_.gateway;
    if (gateway.pool.empty()) {
      listens("gateway.listen", gateway.listen);
      listens("gateway.control_listen", gateway.control_listen);
      listens("gateway.admin_listen", gateway.admin_listen);
    }
    for (std::size_t i = 0; i < gateway.pool.size(); ++i) {
      listens(fmt::format("gateway.pool.{}.listen", i), gateway.pool[i].listen);
      listens(fmt::format("gateway.pool.{}.control_listen", i), gateway.pool[i].control_listen);
      listens(fmt::format("gateway.pool.{}.admin_listen", i), gateway.pool[i].admin_listen);
    }
    const auto add_pool = [&](const char* role, const std::vector<NodeEntry>& pool) {
      for (std::size_t i = 0; i < pool.size(); ++i) {
        listens(fmt::format("{}.pool.{}.control_listen", role, i), pool[i].control_listen);
        listens(fmt::format("{}.pool.{}.admin_listen", role, i), pool[i].admin_listen);
      }
    };
    add_pool("prefill", config_.prefill.pool);
    add_pool("decode", config_.decode.pool);
  }

  void check_nodes(const char* role, const std::vector<NodeEntry>& pool) {
    for (std::size_t i = 0; i < pool.size(); ++i) {
      const NodeEntry& entry = pool[i];
      const auto path = fmt::format("{}.pool.{}", role, i);
      if (!entry.name.empty() && !names_.insert(entry.name).second) {
        add(path + ".name", fmt::format("'{}' is the name of two nodes", entry.name));
      }
      const auto listens = HostPort::parse(entry.control_listen);
      if (listens && listens->is_everywhere() && entry.advertise.empty()) {
        add(path + ".control_listen",
            fmt::format("{} is no address that others can dial; say in advertise which is",
                        entry.control_listen));
      }
    }
  }

  // BF16 weights are multiplied alike by all nodes, or the gateway would refuse some.
  void check_float_paths() {
    std::vector<std::pair<std::string, const EngineSection*>> engines;
    const auto add_pool = [&](const char* role, const std::vector<NodeEntry>& pool) {
      for (std::size_t i = 0; i < pool.size(); ++i) {
        if (pool[i].engine.backend == "cuda" || pool[i].engine.backend == "reference") {
          continue;
        }
        engines.emplace_back(fmt::format("{}.pool.{}.engine.float_path", role, i), &pool[i].engine);
      }
    };
    add_pool("prefill", config_.prefill.pool);
    add_pool("decode", config_.decode.pool);
    for (const auto& [key, engine] : engines) {
      const std::string& path = engine->float_path;
      if (path != engines.front().second->float_path) {
        add(key,
            fmt::format("{}, where {} is {}; all nodes must compute alike",
                        path,
                        engines.front().first,
                        engines.front().second->float_path));
      }
      const std::string_view isa = path == "exact"      ? std::string_view(engine->isa)
                                   : path == "amx_bf16" ? "amx"
                                                        : "avx512";
      if (engine->isa != "auto" && engine->isa != isa) {
        add(key, fmt::format("{} needs isa auto or {}, not {}", path, isa, engine->isa));
      }
    }
  }

  void check_gateways(const std::vector<GatewayEntry>& pool) {
    for (std::size_t i = 0; i < pool.size(); ++i) {
      if (!pool[i].name.empty() && !names_.insert(pool[i].name).second) {
        add(fmt::format("gateway.pool.{}.name", i),
            fmt::format("'{}' is the name of two programs", pool[i].name));
      }
    }
  }

  void check_gateway(const GatewaySection& gateway) {
    std::uint32_t shares = 0;
    for (const TierSection& tier : gateway.tiers) {
      shares += tier.share_percent;
    }
    if (shares > 100) {
      add("gateway.tiers",
          fmt::format("the shares of all tiers are {} percent together; at most 100 can be kept",
                      shares));
    }
    if (gateway.tls.certificate.empty() != gateway.tls.key.empty()) {
      add("gateway.tls", "certificate and key belong together; one of them is missing");
    }
    const std::string& endpoint = gateway.tracing.endpoint;
    if (!endpoint.empty() && !endpoint.starts_with("http://") &&
        !endpoint.starts_with("https://")) {
      add("gateway.tracing.endpoint",
          fmt::format("'{}' must begin with http:// or https://; OTLP over gRPC is not spoken",
                      endpoint));
    }
    check_models(gateway.models);
    for (ConfigProblem& problem : check_api_keys(gateway.keys, "gateway.keys")) {
      problems_.push_back(std::move(problem));
    }
  }

  void check_pools(const PoolsSection& pools) {
    const auto bounds = [this](const char* role, const PoolBounds& pool) {
      if (pool.max < pool.min) {
        add(fmt::format("pools.{}.max", role),
            fmt::format("{} is below min, {}", pool.max, pool.min));
      }
    };
    bounds("prefill", pools.prefill);
    bounds("decode", pools.decode);
    const auto has_any_role = [](const std::vector<NodeEntry>& pool) {
      return std::ranges::any_of(pool, &NodeEntry::any_role);
    };
    if (pools.change_roles == "on" && !has_any_role(config_.prefill.pool) &&
        !has_any_role(config_.decode.pool)) {
      add("pools.change_roles",
          "on needs at least one node with any_role: true; no other node can change its role");
    }
  }

  void check_models(const std::vector<ModelName>& names) {
    std::set<std::string> ids;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto path = fmt::format("gateway.models.{}", i);
      if (!names[i].id.empty() && !ids.insert(names[i].id).second) {
        add(path + ".id", fmt::format("'{}' stands twice", names[i].id));
      }
      std::uint64_t weights = 0;
      std::set<std::string> models;
      for (const ModelRevision& revision : names[i].revisions) {
        weights += revision.weight;
        if (!revision.model.empty() && !models.insert(revision.model).second) {
          add(path + ".revisions", fmt::format("'{}' stands twice", revision.model));
        }
      }
      if (weights == 0) {
        add(path + ".revisions", "needs at least one revision with a weight above 0");
      }
    }
  }

  const ClusterConfig& config_;
  std::set<NodeName> names_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> check_config(const ClusterConfig& config) {
  return Checker(config).run();
}

std::vector<ConfigProblem> check_api_keys(const std::vector<ApiKeyEntry>& keys,
                                          const std::string& list) {
  std::vector<ConfigProblem> problems;
  std::set<std::string> names;
  std::set<std::string> hashes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto say = [&](const char* key, const std::string& sentence) {
      const auto path = fmt::format("{}.{}.{}", list, i, key);
      problems.push_back({path, fmt::format("{}: {}", path, sentence)});
    };
    if (!keys[i].name.empty() && !names.insert(keys[i].name).second) {
      say("name", fmt::format("'{}' is the name of two keys", keys[i].name));
    }
    if (!keys[i].sha256.empty() && !hashes.insert(keys[i].sha256).second) {
      say("sha256", "is the hash of another key in the list, too");
    }
  }
  return problems;
}

}  // namespace baton
