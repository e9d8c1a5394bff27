// baton bench grammar: what structured output costs, compiling and a token.
#include <fmt/format.h>

#include <memory>

#include "bench/engine/grammar_bench.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct GrammarArguments {
  bench::GrammarBenchOptions options;
  std::string model = "smollm2-135m-instruct";
  bool json = false;
};

void print_row(std::string_view name, const bench::Spread& value) {
  fmt::print("{:<28} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, value.p50, value.p99, value.max);
}

int run(const GrammarArguments& arguments) {
  bench::GrammarBenchOptions options = arguments.options;
  const auto path = model_argument(arguments.model);
  if (!path) {
    return report("bench grammar", path.error());
  }
  options.model = *path;
  const auto result = bench::run_grammar_bench(options);
  if (!result) {
    return report("bench grammar", result.error());
  }
  fmt::print("{} schemas, {} tokens, a vocabulary of {}; the first grammar took {:.1f} ms\n",
             result->schemas,
             result->tokens,
             result->vocab_size,
             result->first_ms);
  fmt::print("{:<28} {:>10} {:>10} {:>10}\n", "us", "p50", "p99", "largest");
  print_row("compile a schema (node)", result->compile);
  print_row("check a schema (gateway)", result->check);
  print_row("mask of a token", result->mask);
  print_row("accept a token", result->accept);
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*result));
  }
  return kDone;
}

}  // namespace

void add_bench_grammar(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<GrammarArguments>();
  bench::GrammarBenchOptions& options = arguments->options;
  CLI::App* command =
      group.add_subcommand("grammar", "Structured output: compiling schemas, masks of tokens");
  command
      ->add_option("--model", arguments->model, "Catalogue name, GGUF file or Hugging Face folder")
      ->capture_default_str();
  command->add_option("--schemas", options.schemas, "File with a JSON schema a line");
  command->add_option("--outputs", options.outputs, "Random outputs of each schema")
      ->capture_default_str();
  command->add_option("--longest", options.longest, "Tokens of an output at most")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "Times on one thread. A node makes masks while the forward pass runs.\n"
      "Examples:\n"
      "  baton bench grammar --json\n"
      "  tests/e2e/schemas.py > /tmp/schemas.jsonl && baton bench grammar --schemas "
      "/tmp/schemas.jsonl");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
