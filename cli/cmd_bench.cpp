// baton bench: measurements and proofs. This file holds same-tokens and the group itself.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "bench/engine/same_tokens.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"

namespace baton::cli {
namespace {

struct SameTokensArguments {
  bench::SameTokensOptions options;
  bool json = false;
};

int run_same_tokens(const SameTokensArguments& arguments) {
  bench::SameTokensOptions options = arguments.options;
  options.bin_folder = program_folder();
  if (options.run_folder.empty()) {
    options.run_folder =
        (std::filesystem::temp_directory_path() / fmt::format("baton-same-tokens-{}", getpid()))
            .string();
  }
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto checks = bench::run_same_tokens(options);
  if (!checks) {
    return report("bench same-tokens", checks.error());
  }
  std::size_t passed = 0;
  for (const bench::SameTokensCheck& check : *checks) {
    passed += check.passed ? 1 : 0;
    fmt::print("{}\n", check.to_string());
    for (const bench::Difference& difference : check.differences) {
      fmt::print("     prompt {}: first difference at token {}: {} and {}\n",
                 difference.prompt,
                 difference.position,
                 difference.left,
                 difference.right);
    }
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*checks));
  }
  fmt::print("{} passed, {} failed\n", passed, checks->size() - passed);
  return passed == checks->size() ? kDone : kFailed;
}

void add_same_tokens(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<SameTokensArguments>();
  CLI::App* command = group.add_subcommand(
      "same-tokens", "Show that answers do not depend on how they are computed");
  command
      ->add_option(
          "--prompts", arguments->options.prompts_file, "JSONL: {\"prompt\", \"max_tokens\"}")
      ->required();
  command
      ->add_option(
          "--model", arguments->options.model, "Catalogue name, GGUF file or Hugging Face folder")
      ->capture_default_str();
  command
      ->add_option("--speculation",
                   arguments->options.speculation,
                   "Compare speculation of this kind with none, instead of the other checks")
      ->check(CLI::IsMember({"ngram", "draft"}));
  command->add_option("--draft-model",
                      arguments->options.draft_model,
                      "For --speculation draft: catalogue name or GGUF file");
  command->add_option("--batch", arguments->options.batch, "Size that the big batches must reach")
      ->capture_default_str()
      ->check(CLI::Range(2, 32));
  command
      ->add_option("--tensor-parallel",
                   arguments->options.tensor_parallel,
                   "Ranks of one node of each pair, beside nodes of one rank")
      ->check(CLI::IsMember({1, 2, 4}))
      ->capture_default_str();
  command->add_option("--kv-dtype", arguments->options.kv_dtype, "Type of keys and values")
      ->capture_default_str()
      ->check(CLI::IsMember({"i16", "f16", "f32", "i8", "f8"}));
  command->add_option("--arena-mb", arguments->options.arena_mb, "KV memory of each node")
      ->capture_default_str();
  command->add_option(
      "--run-dir", arguments->options.run_folder, "Folder of configurations and logs");
  command->add_flag(
      "--json", arguments->json, "Print the checks as JSON too, before the last line");
  command->footer(
      "Starts two or three local clusters one after another. Each check prints what its passes "
      "were seen "
      "to\n"
      "do; a check whose case did not happen fails. The last line is \"N passed, M failed\".\n"
      "Examples:\n"
      "  tools/make_prompts > prompts.jsonl\n"
      "  baton bench same-tokens --prompts prompts.jsonl\n"
      "  baton bench same-tokens --prompts prompts.jsonl --kv-dtype i8\n"
      "  baton bench same-tokens --prompts prompts.jsonl --speculation ngram");
  command->callback(
      [arguments, &chosen] { chosen = [arguments] { return run_same_tokens(*arguments); }; });
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* group = app.add_subcommand("bench", "Measurements and proofs");
  group->require_subcommand(1);
  group->footer("Examples:\n  baton bench same-tokens --help\n  baton bench engine --help");
  add_same_tokens(*group, chosen);
  add_bench_engine(*group, chosen);
  add_bench_gateway(*group, chosen);
  add_bench_interference(*group, chosen);
  add_bench_grammar(*group, chosen);
  add_bench_pools(*group, chosen);
  add_bench_route(*group, chosen);
  add_bench_serve(*group, chosen);
  add_bench_tokenizer(*group, chosen);
  add_bench_transfer(*group, chosen);
}

}  // namespace baton::cli
