// baton bench engine: speed of the engine alone, beside llama.cpp. engine-turn is one measurement
// of it, in a process of its own.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>

#include "bench/engine/engine_bench.h"
#include "bench/engine/engine_turn.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

struct EngineArguments {
  bench::EngineBenchOptions options;
  std::vector<std::string> kv_dtypes{"i16", "i8"};
  std::vector<std::string> only;
  bool json = false;
  bool markdown = false;
};

template <class Dtypes>
CLI::Option* add_kv_dtype(CLI::App& command, Dtypes& dtypes, const char* help) {
  return command.add_option("--kv-dtype", dtypes, help)
      ->capture_default_str()
      ->check(CLI::IsMember({"i16", "f16", "f32", "i8", "f8"}));
}

int run(const EngineArguments& arguments) {
  bench::EngineBenchOptions options = arguments.options;
  options.kv_dtypes.clear();
  for (const std::string& dtype : arguments.kv_dtypes) {
    options.kv_dtypes.push_back(*kv_dtype_named(dtype));
  }
  for (std::string& model : options.models) {
    const auto path = model_argument(model);
    if (!path) {
      return report("bench engine", path.error());
    }
    model = *path;
  }
  if (!arguments.only.empty()) {
    const std::set<std::string> only(arguments.only.begin(), arguments.only.end());
    options.parts = {.prefill = only.contains("prefill"),
                     .decode = only.contains("decode"),
                     .long_context = only.contains("long"),
                     .load = only.contains("load")};
  }
  options.program = program_folder() + "/baton";
  options.run_folder =
      (std::filesystem::temp_directory_path() / fmt::format("baton-bench-engine-{}", ::getpid()))
          .string();
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto measured = bench::run_engine_bench(options);
  if (!measured) {
    return report("bench engine", measured.error());
  }
  fmt::print("{}", arguments.markdown ? bench::to_markdown(*measured) : bench::to_text(*measured));
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*measured));
  }
  return kDone;
}

struct TurnArguments {
  bench::EngineTurnOptions options;
  std::string kv_dtype = "i16";
  std::vector<std::string> work;
};

int run_turn(const TurnArguments& arguments) {
  bench::EngineTurnOptions options = arguments.options;
  options.kv_dtype = *kv_dtype_named(arguments.kv_dtype);
  for (const std::string& text : arguments.work) {
    const auto work = bench::EngineWork::parse(text);
    if (!work) {
      return report("bench engine-turn", work.error());
    }
    options.work.push_back(*work);
  }
  const auto turn = bench::run_engine_turn(options);
  if (!turn) {
    return report("bench engine-turn", turn.error());
  }
  fmt::print("{}\n", turn->to_json());
  return kDone;
}

void add_turn(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<TurnArguments>();
  CLI::App* command =
      group.add_subcommand("engine-turn", "One measurement of `bench engine`, as JSON");
  command->group("");  // not for people
  command->add_option("model", arguments->options.model)->required();
  command->add_option("--threads", arguments->options.threads);
  command->add_option("--packed-cache", arguments->options.packed_cache);
  add_kv_dtype(*command, arguments->kv_dtype, "Type of keys and values");
  command->add_option("--float-path", arguments->options.float_path);
  command->add_option("--work", arguments->work, "prefill:TOKENS or decode:TOKENS:BATCH:CONTEXT")
      ->required();
  command->callback(
      [arguments, &chosen] { chosen = [arguments] { return run_turn(*arguments); }; });
}

}  // namespace

void add_bench_engine(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<EngineArguments>();
  bench::EngineBenchOptions& options = arguments->options;
  options.models = {"smollm2-135m-instruct"};
  CLI::App* command = group.add_subcommand("engine", "Speed of the engine alone");
  command->add_option("--model", options.models, "Catalogue names or GGUF files")
      ->capture_default_str()
      ->delimiter(',');
  command->add_option("--peer", options.peer, "llama.cpp programs: a folder, or auto");
  command->add_option("--only", arguments->only, "Parts to measure; all when left out")
      ->check(CLI::IsMember({"prefill", "decode", "long", "load"}))
      ->delimiter(',');
  command->add_option("--float-path", options.float_path, "Our arithmetic of BF16 weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "amx_bf16", "avx512_bf16"}));
  command->add_option("--threads", options.threads, "Thread counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->delimiter(',');
  command->add_option("--prefill", options.prefill_tokens, "Prompt lengths")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->delimiter(',');
  command->add_option("--generate", options.generate_tokens, "Tokens that one stream generates")
      ->capture_default_str();
  command->add_option("--batch", options.batches, "Decode batches, on the most threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->delimiter(',');
  add_kv_dtype(*command,
               arguments->kv_dtypes,
               "Types of keys and values; those after the first for batches and long contexts")
      ->delimiter(',');
  command->add_option("--long-context", options.long_context, "Tokens of the long contexts")
      ->capture_default_str();
  command
      ->add_option("--repetitions", options.repetitions, "Turns of each figure; the median counts")
      ->capture_default_str();
  command->add_flag(
      "--markdown", arguments->markdown, "Tables as docs/performance/engine.md has them");
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "Ours and the peer's take turns, each in a process of its own; the peer counts with or\n"
      "without flash attention, and for several --kv-dtype with Q8_0 ones, whichever is best.\n"
      "\"of peak\" is the share of the int8 peak (quantised weights), of the f32 FMA peak (float\n"
      "weights) or of the BF16 dot product's (BF16 weights by avx512_bf16), \"of mem\" of the\n"
      "memory's read rate; the peaks are measured in the same run. A model of 135M takes about "
      "ten\n"
      "minutes with the peer.\n"
      "Examples:\n"
      "  baton bench engine --json\n"
      "  tools/peers/llama_cpp && baton bench engine --peer auto --markdown\n"
      "  baton bench engine --peer auto --only load --repetitions 3 --model a.gguf,b.gguf");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
  add_turn(group, chosen);
}

}  // namespace baton::cli
