// baton perplexity: how well a model predicts a text, by llama-perplexity's method.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "bench/engine/perplexity.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct PerplexityArguments {
  bench::PerplexityOptions options;
  std::string kv_dtype = "i16";
  bool json = false;
};

int run(const PerplexityArguments& arguments) {
  bench::PerplexityOptions options = arguments.options;
  const auto path = model_argument(options.model);
  if (!path) {
    return report("perplexity", path.error());
  }
  options.model = *path;
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto dtype = kv_dtype_named(arguments.kv_dtype);
  // Another type is measured beside i16, the default, so that its cost is seen.
  std::optional<bench::PerplexityResult> plain;
  if (dtype && *dtype != KvDType::I16) {
    const auto result = bench::run_perplexity(options);
    if (!result) {
      return report("perplexity", result.error());
    }
    plain = *result;
    options.kv_dtype = *dtype;
  }
  const auto result = bench::run_perplexity(options);
  if (!result) {
    return report("perplexity", result.error());
  }
  const double cost = plain ? 100 * (result->perplexity / plain->perplexity - 1) : 0;
  if (arguments.json) {
    const std::string beside =
        plain ? fmt::format(
                    ",\"i16_perplexity\":{:.6f},\"cost_percent\":{:.4f}", plain->perplexity, cost)
              : std::string();
    fmt::print(
        "{{\"perplexity\":{:.6f},\"standard_error\":{:.6f},\"tokens\":{},\"chunks\":{},"
        "\"kv_dtype\":\"{}\"{}}}\n",
        result->perplexity,
        result->standard_error,
        result->tokens,
        result->chunks,
        arguments.kv_dtype,
        beside);
  } else {
    fmt::print("perplexity {:.4f} +/- {:.4f} over {} tokens in {} chunks\n",
               result->perplexity,
               result->standard_error,
               result->tokens,
               result->chunks);
    if (plain) {
      fmt::print("keys and values in {}: {:+.3f} % beside {:.4f} in i16\n",
                 arguments.kv_dtype,
                 cost,
                 plain->perplexity);
    }
  }
  return kDone;
}

}  // namespace

void add_perplexity(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<PerplexityArguments>();
  arguments->options.model = "smollm2-135m-instruct";
  CLI::App* command = app.add_subcommand("perplexity", "Perplexity of a text under a model");
  command->add_option("text", arguments->options.text_file, "UTF-8 text, at least two chunks long")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option(
          "--model", arguments->options.model, "Catalogue name, GGUF file or Hugging Face folder")
      ->capture_default_str();
  command->add_option("--context", arguments->options.context, "Tokens of a chunk")
      ->capture_default_str();
  command->add_option("--chunks", arguments->options.chunks, "Chunks to score; 0: all")
      ->capture_default_str();
  command->add_option("--threads", arguments->options.threads, "Threads; 0: all cores")
      ->capture_default_str();
  command->add_option("--float-path", arguments->options.float_path, "Arithmetic of BF16 weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "amx_bf16", "avx512_bf16"}));
  command->add_option("--backend", arguments->options.backend, "cpu, cuda or reference")
      ->capture_default_str();
  command
      ->add_option("--kv-dtype",
                   arguments->kv_dtype,
                   "Type of keys and values; others than i16 are measured beside it")
      ->capture_default_str()
      ->check(CLI::IsMember({"i16", "f16", "f32", "i8", "f8"}));
  command->add_flag("--json", arguments->json, "Print one JSON line instead of text");
  command->footer(
      "Examples:\n"
      "  baton perplexity text.txt\n"
      "  baton perplexity text.txt --kv-dtype i8\n"
      "  baton perplexity text.txt --model gemma3-270m --json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
