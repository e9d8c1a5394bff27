// baton bench pools: compares ways to share nodes between the two roles on loads that change.
#include <fmt/format.h>

#include <memory>

#include "bench/pools/pools_bench.h"
#include "cli/command.h"

namespace baton::cli {
namespace {

struct PoolsArguments {
  bench::PoolsBenchOptions options;
  double day_hours = 24;
  bool json = false;
};

int run(const PoolsArguments& arguments) {
  bench::PoolsBenchOptions options = arguments.options;
  options.day_s = arguments.day_hours * 3600;
  options.cluster.seed = options.seed;
  if (options.cluster.nodes < options.least.prefill + options.least.decode) {
    return report("bench pools",
                  {ErrorCode::InvalidArgument, "--nodes is less than both floors together"});
  }
  const bench::PoolsReport result = bench::run_pools_bench(
      options, [](std::string_view line) { fmt::print(stderr, "    {}\n", line); });
  fmt::print("{}", to_table(result));
  if (arguments.json) {
    fmt::print("{}\n", to_json(result));
  }
  return result.broken.empty() ? kDone : kFailed;
}

}  // namespace

void add_bench_pools(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<PoolsArguments>();
  bench::PoolsBenchOptions& options = arguments->options;
  CLI::App* command = group.add_subcommand(
      "pools", "Compare static ratios, an oracle and the pool controller, with simulated nodes");
  command->add_option("--nodes", options.cluster.nodes, "Nodes that the two roles share")
      ->capture_default_str()
      ->check(CLI::Range(4, 64));
  command->add_option("--scale", options.scale, "Times the rates of all loads")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 100.0));
  command->add_option("--day-hours", arguments->day_hours, "Length of the diurnal load's day")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 48.0));
  command->add_option("--floor-prefill", options.least.prefill, "Fewest prefill nodes")
      ->capture_default_str()
      ->check(CLI::Range(1, 32));
  command->add_option("--floor-decode", options.least.decode, "Fewest decode nodes")
      ->capture_default_str()
      ->check(CLI::Range(1, 32));
  command->add_option("--cooldown", options.cooldown_s, "Seconds between two changes of a role")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  command->add_option("--seed", options.seed, "Of the arrivals and of the nodes' noise")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "Kept: requests whose first token and mean pace were within the targets. Replicas: nodes "
      "are\n"
      "started (in 90 s) and stopped as baton_pool_desired_replicas says, at most --nodes a role.\n"
      "Ends with 1 when the controller keeps less than 95 % of what the oracle keeps, changes "
      "roles\n"
      "more than once an hour at steady load, or goes below a floor.\n"
      "Examples:\n"
      "  baton bench pools\n"
      "  baton bench pools --seed 7 --day-hours 6 --json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
