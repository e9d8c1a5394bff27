// baton bench interference: what long prompts do to the pace of running streams.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "bench/cluster/interference.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct InterferenceArguments {
  bench::InterferenceOptions options;
  bool json = false;
  bool markdown = false;
};

int run(const InterferenceArguments& arguments) {
  bench::InterferenceOptions options = arguments.options;
  const auto path = model_argument(options.model);
  if (!path) {
    return report("bench interference", path.error());
  }
  options.model = *path;
  options.bin_folder = program_folder();
  if (options.run_folder.empty()) {
    options.run_folder =
        (std::filesystem::temp_directory_path() / fmt::format("baton-interference-{}", ::getpid()))
            .string();
  }
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto rows = bench::run_interference(options);
  if (!rows) {
    return report("bench interference", rows.error());
  }
  fmt::print("{}", arguments.markdown ? bench::to_markdown(*rows) : bench::to_text(*rows));
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*rows));
  }
  return kDone;
}

}  // namespace

void add_bench_interference(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<InterferenceArguments>();
  bench::InterferenceOptions& options = arguments->options;
  options.model = "smollm2-135m-instruct";
  CLI::App* command =
      group.add_subcommand("interference", "What long prompts do to streams that run");
  command->add_option("--model", options.model, "Catalogue name, GGUF file or Hugging Face folder")
      ->capture_default_str();
  command->add_option("--peer", options.peer, "llama.cpp programs: a folder, or auto");
  command->add_flag("--colocated,!--no-colocated",
                    options.colocated,
                    "Also Baton in one process on all cores (on)");
  command->add_option("--streams", options.streams, "Streams that run")->capture_default_str();
  command->add_option("--prompt", options.long_prompt, "Tokens of the prompts that arrive")
      ->capture_default_str();
  command->add_option("--every", options.every_s, "Seconds between them")->capture_default_str();
  command->add_option("--seconds", options.seconds, "Length of each pass")->capture_default_str();
  command->add_option("--prefill-cores", options.prefill_cores, "Processors of the prefill node")
      ->capture_default_str();
  command->add_option("--decode-cores", options.decode_cores, "Processors of the decode node")
      ->capture_default_str();
  command->add_option("--set", options.set, "KEY=VALUE over Baton's configuration")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--threads", options.threads, "Tell what each thread of Baton did");
  command->add_option("--run-dir", options.run_folder, "Folder of configurations and logs");
  command->add_flag(
      "--markdown", arguments->markdown, "The table as docs/performance/engine.md has it");
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "Each server runs the same streams twice, alone and while the prompts arrive; gaps between\n"
      "tokens are those of positions that both passes reached, at the time the client's kernel\n"
      "got them.\n"
      "Examples:\n"
      "  baton bench interference --no-colocated --threads\n"
      "  tools/peers/llama_cpp && baton bench interference --peer auto --markdown");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
