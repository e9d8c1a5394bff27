// baton check: reads a cluster configuration as every program would and says what it means.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/check/review.h"
#include "cli/cluster/config_notes.h"
#include "cli/command.h"
#include "common/config/catalogue.h"
#include "common/config/cluster_config.h"
#include "common/config/gateways.h"
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
  bool host = false;
};

void print_pool(const char* role, const std::vector<NodeEntry>& pool) {
  for (const NodeEntry& node : pool) {
    const bool listens = role == std::string_view("decode") || node.any_role;
    fmt::print("  {:<8} {:<16} control {:<22} admin {}\n",
               role,
               node.name,
               listens ? node.control_listen : "dials only",
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

// Everything a program would trip over later although the file is well formed, as "file:line: key:
// sentence"; true when the file cannot be used.
Result<bool> tell_findings(const CheckArguments& arguments, const ClusterConfig& config) {
  BATON_ASSIGN(const YamlNode root, load_yaml(arguments.config, arguments.overrides));
  std::vector<Finding> findings = review(config, facts_of_this_machine());
  if (!config.model.path.empty() && std::filesystem::exists(config.model.path)) {
    if (const Status status = check_model(config.model.path, config.kv.block_tokens); !status) {
      findings.push_back({"model.path", status.error().message});
    }
  }
  const std::uint64_t memory = memory_of_this_machine() >> 20U;
  if (config.kv.arena_mb > memory) {
    findings.push_back(
        {"kv.arena_mb",
         fmt::format("{} MiB for each node and this machine has {}", config.kv.arena_mb, memory)});
  }
  std::vector<std::pair<std::string, Finding>> placed;
  for (Finding& finding : findings) {
    placed.emplace_back(place_in(root, finding.key, arguments.config), std::move(finding));
  }
  std::ranges::stable_sort(placed, is_before, &std::pair<std::string, Finding>::first);
  bool is_unusable = false;
  for (const auto& [place, finding] : placed) {
    const bool is_fault = finding.weight == Finding::Weight::Wrong ||
                          (arguments.host && finding.weight == Finding::Weight::BeforeStart);
    is_unusable = is_unusable || is_fault;
    fmt::print(stderr,
               "baton check: {}{}: {}: {}\n",
               is_fault ? "" : "note: ",
               place,
               finding.key,
               finding.text);
  }
  return is_unusable;
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
  const auto is_unusable = tell_findings(arguments, *config);
  if (!is_unusable) {
    return report("check", is_unusable.error());
  }
  if (*is_unusable) {
    return kUsage;
  }
  fmt::print("{}: good. cluster {}, model {}, {} prefill and {} decode nodes, KV over {}\n",
             arguments.config,
             config->cluster.name,
             config->model.id,
             config->prefill.pool.size(),
             config->decode.pool.size(),
             config->transfer.transport);
  for (const GatewayEntry& gateway : gateways_of(*config)) {
    fmt::print("  gateway  {}API {}, control {}{}\n",
               config->gateway.pool.empty() ? "" : gateway.name + ": ",
               gateway.listen,
               gateway.control_listen,
               config->cluster.tls.is_on() ? ", certificates on both sides" : "");
  }
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
  command->add_flag(
      "--host", arguments->host, "This machine is to run it: what it lacks is a fault, not a note");
  command->footer(
      "A wrong key or value is told as file:line with the nearest valid key; so are a model that\n"
      "nobody knows or that cannot be read, no decode nodes, an arena larger than this machine's\n"
      "memory, keys with one name, and two programs that listen at one address. Exit status 2.\n"
      "A placeholder as token, example keys, and files of TLS and keys, interfaces of\n"
      "transfer.network, GPUs and a limit of locked memory that are not as the file needs them\n"
      "are notes; with --host they are faults, too. An address that other hosts could not reach\n"
      "is a note.\n"
      "Examples:\n"
      "  baton check --host /etc/baton/cluster.yaml\n"
      "  baton check configs/local.yaml\n"
      "  baton check --describe > cluster.yaml");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
