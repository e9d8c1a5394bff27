// baton rules: alert rules for Prometheus from the objectives of cluster.yaml.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/rules/rules.h"
#include "common/config/cluster_config.h"
#include "common/config/gateways.h"

namespace baton::cli {
namespace {

struct RulesArguments {
  std::string config = "cluster.yaml";
  std::vector<std::string> overrides;
  RuleOptions options;
  bool scrape = false;
  bool alertmanager = false;
};

// A port that the system chooses at each start cannot be scraped, nor two gateways at one address.
// True when there is none of these.
bool all_ports_known(const ClusterConfig& config) {
  bool known = true;
  std::map<std::string, std::string> gateways;  // by address
  const auto look = [&known](std::string_view who, std::string_view address) {
    if (address.ends_with(":0")) {
      known = false;
      fmt::print(
          stderr, "baton rules: {} has port 0 in admin_listen; give it one of its own\n", who);
    }
  };
  for (const GatewayEntry& gateway : gateways_of(config)) {
    look(gateway.name, gateway.admin_listen);
    const auto [first, is_new] = gateways.emplace(admin_address(gateway), gateway.name);
    if (known && !is_new) {
      known = false;
      fmt::print(stderr,
                 "baton rules: {} and {} have one address for metrics, {}; give each its own "
                 "admin_listen in gateway.pool\n",
                 first->second,
                 gateway.name,
                 first->first);
    }
  }
  for (const auto* pool : {&config.prefill.pool, &config.decode.pool}) {
    for (const NodeEntry& node : *pool) {
      look(node.name, node.admin_listen);
    }
  }
  return known;
}

int run(RulesArguments arguments) {
  if (arguments.alertmanager) {
    fmt::print("{}", alertmanager_config());
    return kDone;
  }
  const auto config = load_config(arguments.config, arguments.overrides);
  arguments.options.source = arguments.config;
  if (!config) {
    return report("rules", config.error());
  }
  if (arguments.scrape && !all_ports_known(*config)) {
    return kUsage;
  }
  fmt::print("{}",
             arguments.scrape ? scrape_config(*config, arguments.options)
                              : alert_rules(*config, arguments.options));
  return kDone;
}

}  // namespace

void add_rules(CLI::App& app, Action& chosen) {
  auto a = std::make_shared<RulesArguments>();
  CLI::App* command =
      app.add_subcommand("rules", "Alert rules for Prometheus, a phase apart from the others");
  command->add_option("--config", a->config, "Cluster configuration; its section slo counts")
      ->capture_default_str();
  command->add_option("--set", a->overrides, "Override, key=value; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--runbooks", a->options.runbooks, "Folder or address that the alerts' links begin with")
      ->capture_default_str();
  command
      ->add_option("--speed-up", a->options.speed_up, "Divide all windows, for a drill of minutes")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1000.0));
  auto* scrape = command->add_flag(
      "--scrape", a->scrape, "Print the scrape configuration of all programs instead");
  command
      ->add_flag("--alertmanager",
                 a->alertmanager,
                 "Print an example for Alertmanager instead: a receiver a phase")
      ->excludes(scrape);
  command->footer(
      "Every alert has the labels `phase` (prefill, transfer, decode, gateway) and `severity` "
      "(page,\n"
      "ticket), and a link to its runbook. The metrics carry no role of their own: take the "
      "scrape\n"
      "configuration, which gives each target the labels `role` and `node`.\n"
      "Examples:\n"
      "  baton rules --config cluster.yaml > baton.rules.yaml && promtool check rules "
      "baton.rules.yaml\n"
      "  baton rules --config cluster.yaml --scrape > scrape.yml   # the scrape_configs of "
      "prometheus.yml");
  command->callback([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace baton::cli
