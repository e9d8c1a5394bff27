// baton bench engine: prefill and decode speed of the engine alone, beside llama.cpp.
#include <fmt/format.h>

#include <memory>

#include "bench/engine_bench.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct EngineArguments {
  bench::EngineBenchOptions options;
  bool json = false;
};

int run(const EngineArguments& arguments) {
  bench::EngineBenchOptions options = arguments.options;
  const auto path = model_argument(options.model);
  if (!path) {
    return report("bench engine", path.error());
  }
  options.model = *path;
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto rows = bench::run_engine_bench(options);
  if (!rows) {
    return report("bench engine", rows.error());
  }
  fmt::print("{:<36} {:<8} {:>6} {:>6} {:>8} {:>10} {:>10} {:>7} {:>6}\n",
             "file",
             "phase",
             "tokens",
             "batch",
             "threads",
             "tokens/s",
             "peer",
             "ratio",
             "roof");
  for (const bench::EngineBenchRow& row : *rows) {
    fmt::print("{:<36} {:<8} {:>6} {:>6} {:>8} {:>10.1f} {:>10.1f} {:>7.2f} {:>6.2f}\n",
               row.file,
               row.phase,
               row.tokens,
               row.batch,
               row.threads,
               row.tokens_per_s,
               row.peer_tokens_per_s,
               row.ratio,
               row.roof_share);
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*rows));
  }
  return kDone;
}

}  // namespace

void add_bench_engine(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<EngineArguments>();
  arguments->options.model = "smollm2-135m-instruct";
  CLI::App* command = group.add_subcommand("engine", "Speed of the engine alone");
  command->add_option("--model", arguments->options.model, "Catalogue name or GGUF file")
      ->capture_default_str();
  command->add_option("--peer", arguments->options.peer, "llama.cpp programs: a folder, or auto");
  command->add_option("--threads", arguments->options.threads, "Thread counts")
      ->capture_default_str()
      ->delimiter(',');
  command->add_option("--prefill", arguments->options.prefill_tokens, "Prompt lengths")
      ->capture_default_str()
      ->delimiter(',');
  command->add_option("--batch", arguments->options.batches, "Decode batches")
      ->capture_default_str()
      ->delimiter(',');
  command
      ->add_option(
          "--repetitions", arguments->options.repetitions, "Turns of each row; the median counts")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "Examples:\n"
      "  baton bench engine --json\n"
      "  tools/peers/llama_cpp && baton bench engine --peer auto --json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
