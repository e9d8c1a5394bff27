// baton bench gateway: what the gateway adds to a request, costs a token and holds a stream.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/gateway/gateway_bench.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct GatewayArguments {
  bench::GatewayBenchOptions options;
  std::string model = "smollm2-135m-instruct";
  bool json = false;
};

int run(const GatewayArguments& arguments) {
  bench::GatewayBenchOptions options = arguments.options;
  const auto path = model_argument(arguments.model);
  if (!path) {
    return report("bench gateway", path.error());
  }
  options.rig.model = *path;
  options.rig.bin_folder = program_folder();
  const bool own_folder = options.rig.run_folder.empty();
  if (own_folder) {
    options.rig.run_folder =
        (std::filesystem::temp_directory_path() / fmt::format("baton-bench-gateway-{}", ::getpid()))
            .string();
  }
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto result = bench::run_gateway_bench(options);
  if (!result) {
    return report("bench gateway", result.error());
  }
  if (own_folder) {
    std::error_code ignored;
    std::filesystem::remove_all(options.rig.run_folder, ignored);
  }
  fmt::print("{}", bench::to_text(*result));
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*result));
  }
  return kDone;
}

}  // namespace

void add_bench_gateway(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<GatewayArguments>();
  bench::GatewayBenchOptions& options = arguments->options;
  options.rig.gateway_core = std::max(1U, std::thread::hardware_concurrency()) - 1;
  CLI::App* command =
      group.add_subcommand("gateway", "What the gateway adds to requests and streams");
  command->add_option("--model", arguments->model, "Model whose tokenizer is used")
      ->capture_default_str();
  command->add_option("--seconds", options.seconds, "Length of each pass of requests")
      ->capture_default_str()
      ->check(CLI::Range(0.2, 600.0));
  command->add_option("--small-rate", options.small_rate, "Requests of 2 KiB a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--large-rate", options.large_rate, "Requests of 128 KiB a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--streams", options.streams, "Streams that are open at a time, runs apart")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--stream-seconds", options.stream_seconds, "Time that all of them are open")
      ->capture_default_str()
      ->check(CLI::Range(1, 600));
  command
      ->add_option(
          "--only",
          options.only,
          "This part alone, may be repeated: small, large, flood (streams without a pace), "
          "open (streams at a token a second)")
      ->check(CLI::IsMember({"small", "large", "flood", "open"}));
  command->add_option(
      "--soak", options.soak_seconds, "Instead: unique long prompts for so many seconds");
  command->add_option(
      "--overload", options.overload_seconds, "Instead: three times the capacity, seconds");
  command->add_option("--gateway-core", options.rig.gateway_core, "Processor of the gateway")
      ->capture_default_str();
  command->add_option("--other-core", options.rig.other_core, "Processor of nodes and clients")
      ->capture_default_str();
  command->add_option("--set", options.rig.set, "KEY=VALUE over the gateway's configuration")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--run-dir", options.rig.run_folder, "Folder of configurations and logs");
  command->add_flag("--peers",
                    options.peers,
                    "Also nginx, sglang-router and vllm-router, those that are installed");
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "A real gateway on a processor of its own, scripted nodes and an open loop of requests on\n"
      "another; these never sleep, since waking one is no work of a gateway whose peers are on "
      "other\n"
      "hosts. \"added\" is over a bare Boost.Beast server that answers the same bytes in the same\n"
      "run; of large bodies the tokenizer's own time is left out, and printed. CPU is the gateway\n"
      "process's, without the tokenizer's.\n"
      "Examples:\n"
      "  baton bench gateway\n"
      "  baton bench gateway --json --streams 2000\n"
      "  baton bench gateway --peers\n"
      "  baton bench gateway --soak 300\n"
      "  baton bench gateway --overload 60 --json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
