// baton check: reads a cluster configuration as every program would and says what it means.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/cluster/config_notes.h"
#include "cli/command.h"
#include "common/config/catalogue.h"
#include "common/config/cluster_config.h"
#include "common/config/yaml_tree.h"
#include "engine/model/model.h"
#include "engine/model/model_file.h"
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

std::uint64_t memory_of_this_machine() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// All of a model but its weights: what a node reads first. Says what an operator should know.
Status check_model(const std::string& path, std::uint32_t block_tokens) {
  BATON_ASSIGN(const auto file, engine::ModelFile::open(path));
  BATON_ASSIGN(auto spec, file->tokenizer_spec());
  BATON_TRY(engine::Tokenizer::create(std::move(spec)));
  BATON_TRY(engine::kv_layout_of(*file, block_tokens));
  for (const std::string& note : file->notes()) {
    fmt::print("note: {}: {}\n", path, note);
  }
  return {};
}

// What every program would trip over later, although the file is well formed.
Status check_machine(const CheckArguments& arguments, const ClusterConfig& config) {
  const auto problem = [&](const std::string& key, const std::string& what) -> Status {
    BATON_ASSIGN(const YamlNode root, load_yaml(arguments.config, arguments.overrides));
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}: {}: {}", place_in(root, key, arguments.config), key, what));
  };
  if (!config.model.path.empty()) {
    if (!std::filesystem::exists(config.model.path)) {
      return problem("model.path", fmt::format("there is no file {}", config.model.path));
    }
    if (const Status status = check_model(config.model.path, config.kv.block_tokens); !status) {
      return problem("model.path", status.error().message);
    }
  }
  const std::uint64_t memory = memory_of_this_machine() >> 20U;
  if (config.kv.arena_mb > memory) {
    return problem(
        "kv.arena_mb",
        fmt::format("{} MiB for each node and this machine has {}", config.kv.arena_mb, memory));
  }
  return {};
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
  if (const Status status = check_machine(arguments, *config); !status) {
    return report("check", status.error());
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
      "A wrong key or value is told as file:line with the nearest valid key; so are a model file\n"
      "that is not there or cannot be read, what a model folder lacks, an arena larger than this "
      "machine's memory, and two programs that\n"
      "listen at one address. Exit status 2.\n"
      "Examples:\n"
      "  baton check configs/local.yaml\n"
      "  baton check --describe > cluster.yaml");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
