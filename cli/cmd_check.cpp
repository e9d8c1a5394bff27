// baton check: reads a cluster configuration as every program would and says what it means.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cli/cluster/config_notes.h"
#include "cli/command.h"
#include "common/config/catalogue.h"
#include "common/config/cluster_config.h"
#include "transfer/transport.h"

namespace baton::cli {
namespace {

struct CheckArguments {
  std::string config = "cluster.yaml";
  std::vector<std::string> overrides;
  bool describe = false;
};

void print_pool(const char* role, const std::vector<NodeEntry>& pool) {
  for (const NodeEntry& node : pool) {
    fmt::print("  {:<8} {:<16} control {:<22} admin {}\n",
               role,
               node.name,
               node.control_listen,
               node.admin_listen);
  }
}

int run(const CheckArguments& arguments) {
  if (arguments.describe) {
    fmt::print("{}", describe_config());
    return kDone;
  }
  const Result<ClusterConfig> config = load_config(arguments.config, arguments.overrides);
  if (!config) {
    return report("check", config.error());
  }
  fmt::print("{}: good. cluster {}, model {}, {} prefill and {} decode nodes, KV over {}\n",
             arguments.config,
             config->cluster.name,
             config->model.id,
             config->prefill.pool.size(),
             config->decode.pool.size(),
             config->transfer.transport);
  fmt::print(
      "  gateway  API {}, control {}\n", config->gateway.listen, config->gateway.control_listen);
  print_pool("prefill", config->prefill.pool);
  print_pool("decode", config->decode.pool);
  const auto path = resolve_model_path(config->model, CataloguePlaces::from_environment());
  fmt::print("  model    {}\n", path ? *path : path.error().message);
  const auto ucx = transfer::Transport::check({.transport = config->transfer.transport,
                                               .network = config->transfer.network,
                                               .ucx = config->transfer.ucx});
  // A note alone: the file may be another machine's.
  fmt::print("  {:<8} {}\n",
             ucx ? "ucx" : "note",
             ucx ? fmt::format("{}, its lanes are there", *ucx)
                 : "on this machine: " + ucx.error().message);
  if (const std::string note = gateway_port_note(*config); !note.empty()) {
    fmt::print("  note     {}\n", note);
  }
  return kDone;
}

}  // namespace

void add_check(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command = app.add_subcommand("check", "Check a cluster configuration");
  command->add_option("config", arguments->config, "Cluster configuration")->capture_default_str();
  command->add_option("--set", arguments->overrides, "Override, key=value; may be repeated")
      ->allow_extra_args(false);
  command->add_flag(
      "--describe", arguments->describe, "Print every key with default, bounds and help");
  command->footer(
      "A wrong key or value is told as file:line with the nearest valid key; exit status 2.\n"
      "Examples:\n"
      "  baton check configs/local.yaml\n"
      "  baton check --describe > cluster.yaml");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
