// baton bench tokenizer: speed of tokenizing, and its ids, beside the PyPI package `tokenizers`.
#include <fmt/format.h>

#include <memory>

#include "bench/engine/tokenizer_bench.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct TokenizerArguments {
  bench::TokenizerBenchOptions options;
  std::vector<std::string> models{"smollm2-135m-instruct"};
  bool json = false;
};

int run(const TokenizerArguments& arguments) {
  bench::TokenizerBenchOptions options = arguments.options;
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  std::vector<bench::TokenizerBenchRow> rows;
  fmt::print("{:<40} {:<16} {:>8} {:>8} {:>8} {:>8} {:>6}  {}\n",
             "file",
             "family",
             "tokens",
             "cold",
             "warm",
             "peer",
             "ratio",
             "ids");
  bool equal = true;
  for (const std::string& model : arguments.models) {
    const auto path = model_argument(model);
    if (!path) {
      return report("bench tokenizer", path.error());
    }
    options.model = *path;
    const auto row = bench::run_tokenizer_bench(options);
    if (!row) {
      return report("bench tokenizer", row.error());
    }
    const bool peer = row->peer_mb_s > 0;
    fmt::print("{:<40} {:<16} {:>8} {:>8.1f} {:>8.1f} {:>8.2f} {:>6.1f}  {}\n",
               row->file,
               row->family,
               row->tokens,
               row->cold_mb_s,
               row->warm_mb_s,
               row->peer_mb_s,
               row->ratio,
               !peer            ? "-"
               : row->ids_equal ? "equal"
                                : row->difference);
    equal = equal && (!peer || row->ids_equal);
    rows.push_back(*row);
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(rows));
  }
  return equal ? kDone : kFailed;
}

}  // namespace

void add_bench_tokenizer(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<TokenizerArguments>();
  bench::TokenizerBenchOptions& options = arguments->options;
  CLI::App* command =
      group.add_subcommand("tokenizer", "Speed and ids of tokenizers, beside Hugging Face's");
  command
      ->add_option("--model", arguments->models, "Catalogue names or GGUF files, also vocabularies")
      ->capture_default_str();
  command->add_option("--text", options.texts, "Text files; each gives an equal share")->required();
  command->add_option("--bytes", options.bytes, "Text in all")->capture_default_str();
  command->add_option("--peer-python", options.peer_python, "Python that has `tokenizers`");
  command->add_option("--peer-script", options.peer_script, "What it runs")->capture_default_str();
  command->add_option("--rounds", options.rounds, "Turns of ours and the peer's")
      ->capture_default_str();
  command->add_flag("--plain", options.plain, "Control tokens in texts are text");
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "MB/s on one thread: cold is the first pass of a tokenizer just made, warm its second, peer "
      "the\n"
      "best pass of the PyPI package `tokenizers` on the same documents. Ids that differ end it "
      "with 1.\n"
      "Examples:\n"
      "  baton bench tokenizer --text README.md docs/*.md --peer-python "
      "build/test-venv/bin/python");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
