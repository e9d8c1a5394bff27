// baton bench serve: load against any server of the OpenAI API, and advice from it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "bench/engine/prompt_pass.h"
#include "bench/serve/advise.h"
#include "bench/serve/figures.h"
#include "bench/serve/serve.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/http/api_client.h"
#include "cli/model_argument.h"

namespace baton::cli {
namespace {

constexpr const char* kName = "bench serve";

struct ServeArguments {
  std::string base_url = "http://127.0.0.1:8000/v1";
  std::string model;
  double rate = 1;
  unsigned requests = 0;  // 0: 60; of the advice 12
  std::string input = "200";
  std::string output = "200";
  std::string trace;
  double speed_up = 1;
  std::string prompts;
  bool chat = false;
  bool ignore_eos = true;
  std::uint64_t seed = 1;
  std::optional<double> ttft_ms;
  std::optional<double> itl_ms;
  std::string html;
  bool json = false;
  bool advise = false;
  std::vector<std::string> workloads;
  bench::AdviseOptions advice;
};

Error with_option(const char* option, const Error& error) {
  return {ErrorCode::InvalidConfig, fmt::format("{}: {}", option, error.message)};
}

Result<bench::Load> make_load(const ServeArguments& arguments) {
  if (!arguments.trace.empty()) {
    BATON_ASSIGN(bench::Trace trace, bench::read_trace(arguments.trace));
    if (arguments.requests > 0 && trace.size() > arguments.requests) {
      trace.resize(arguments.requests);
    }
    return bench::load_of(trace, arguments.speed_up);
  }
  const auto input = bench::Lengths::parse(arguments.input);
  if (!input) {
    return std::unexpected(with_option("--isl", input.error()));
  }
  const auto output = bench::Lengths::parse(arguments.output);
  if (!output) {
    return std::unexpected(with_option("--osl", output.error()));
  }
  return bench::poisson_load(arguments.rate,
                             arguments.requests > 0 ? arguments.requests : 60,
                             *input,
                             *output,
                             arguments.seed);
}

// One line that is written over, where somebody looks.
void show_progress(const bench::ServeProgress& at) {
  constexpr std::size_t kBar = 30;
  if (::isatty(STDERR_FILENO) == 0) {
    return;
  }
  const std::size_t full = at.all > 0 ? kBar * at.ended / at.all : kBar;
  fmt::print(stderr,
             "\r[{:<{}}] {} of {} answered, {} out, {:.0f} s ",
             std::string(full, '#'),
             kBar,
             at.ended,
             at.all,
             at.sent - at.ended,
             at.seconds);
}

int run_load(const ServeArguments& arguments) {
  auto target = bench::parse_target(arguments.base_url);
  if (!target) {
    return report(kName, with_option("--base-url", target.error()));
  }
  auto load = make_load(arguments);
  if (!load) {
    return report(kName, load.error());
  }
  bench::ServeOptions options;
  options.target = *target;
  options.target.chat = arguments.chat;
  options.target.ignore_eos = arguments.ignore_eos;
  if (const char* key = std::getenv("BATON_API_KEY"); key != nullptr) {
    options.target.api_key = key;
  }
  options.target.model = arguments.model;
  if (arguments.model.empty()) {
    const auto model = ApiClient(arguments.base_url).first_model();
    if (!model) {
      return report(kName, model.error());
    }
    options.target.model = *model;
  }
  options.load = std::move(*load);
  options.seed = arguments.seed;
  if (!arguments.prompts.empty()) {
    const auto prompts = bench::read_prompts(arguments.prompts);
    if (!prompts) {
      return report(kName, prompts.error());
    }
    for (std::size_t i = 0; i < prompts->size(); ++i) {
      options.prompts.push_back((*prompts)[i].text);
    }
    for (std::size_t i = 0; i < options.load.size() && !prompts->empty(); ++i) {
      options.load[i].output_tokens = (*prompts)[i % prompts->size()].max_tokens;
    }
  }
  options.progress = show_progress;
  const auto served = bench::serve_load(options);
  if (::isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\n");
  }
  if (!served) {
    return report(kName, served.error());
  }
  bench::LatencyTargets targets;
  targets.ttft_s = arguments.ttft_ms.value_or(targets.ttft_s * 1e3) / 1e3;
  targets.itl_s = arguments.itl_ms.value_or(targets.itl_s * 1e3) / 1e3;
  const bench::ServeFigures figures = bench::figures_of(*served, targets);
  fmt::print("{}", bench::to_text(figures));
  const auto broken =
      std::ranges::find_if(*served, [](const bench::Served& one) { return !one.is_whole; });
  if (broken != served->end()) {
    fmt::print(stderr, "baton {}: the first that failed: {}\n", kName, broken->error);
  }
  if (!arguments.html.empty()) {
    std::ofstream page(arguments.html);
    page << bench::to_html(
        figures, *served, fmt::format("{} at {}", options.target.model, arguments.base_url));
    page.close();
    if (!page) {
      return report(kName, {ErrorCode::IoError, "cannot write " + arguments.html});
    }
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(figures));
  }
  return figures.whole > 0 ? kDone : kFailed;
}

int run_advise(const ServeArguments& arguments) {
  bench::AdviseOptions options = arguments.advice;
  const std::size_t requests = arguments.requests > 0 ? arguments.requests : 12;
  const auto path =
      model_argument(arguments.model.empty() ? "smollm2-135m-instruct" : arguments.model);
  if (!path) {
    return report(kName, path.error());
  }
  options.model = *path;
  options.bin_folder = program_folder();
  if (options.run_folder.empty()) {
    options.run_folder =
        (std::filesystem::temp_directory_path() / fmt::format("baton-serve-{}", ::getpid()))
            .string();
  }
  if (arguments.ttft_ms) {
    options.ttft_s = *arguments.ttft_ms / 1e3;
  }
  if (arguments.itl_ms) {
    options.itl_s = *arguments.itl_ms / 1e3;
  }
  if (!arguments.trace.empty()) {
    auto load = make_load(arguments);
    if (!load) {
      return report(kName, load.error());
    }
    options.workloads.push_back(
        {std::filesystem::path(arguments.trace).filename().string(), std::move(*load)});
  }
  std::vector<std::string> workloads = arguments.workloads;
  if (workloads.empty() && arguments.trace.empty()) {
    workloads = {"200/200", "4000/100"};
  }
  for (const std::string& text : workloads) {
    auto workload = bench::parse_workload(text, requests);
    if (!workload) {
      return report(kName, with_option("--workload", workload.error()));
    }
    options.workloads.push_back(std::move(*workload));
  }
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto advice = bench::advise(options);
  if (!advice) {
    return report(kName, advice.error());
  }
  for (const bench::Advice& one : *advice) {
    fmt::print("{}\n", bench::to_text(one));
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*advice));
  }
  return kDone;
}

}  // namespace

void add_bench_serve(CLI::App& group, Action& chosen) {
  auto a = std::make_shared<ServeArguments>();
  CLI::App* command =
      group.add_subcommand("serve", "Load a server of the OpenAI API and tell its latencies");
  command->add_option("--base-url", a->base_url, "The server's API, http://host:port/v1")
      ->envname("BATON_BASE_URL")
      ->capture_default_str();
  command->add_option(
      "--model", a->model, "Model to ask for (default: the first that the server has)");
  command->add_option("--rate", a->rate, "Requests a second on average, at random moments")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--requests", a->requests, "Requests in all (60; for the advice 12 a mode)")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--isl", a->input, "Prompt tokens: 200, 100-300, lognormal:MEDIAN,SIGMA")
      ->capture_default_str();
  command->add_option("--osl", a->output, "Answer tokens, the same way")->capture_default_str();
  command
      ->add_option("--trace",
                   a->trace,
                   "JSONL of timestamp (ms), input_length, output_length and "
                   "hash_ids: times and lengths of the requests")
      ->check(CLI::ExistingFile);
  command->add_option("--speed-up", a->speed_up, "Divide the trace's times")
      ->check(CLI::PositiveNumber);
  command->add_option("--prompts", a->prompts, "JSONL of prompt and max_tokens: texts to send")
      ->check(CLI::ExistingFile);
  command->add_flag("--chat", a->chat, "Chat completions of words (default: completions of ids)");
  command->add_flag("--ignore-eos,!--no-ignore-eos",
                    a->ignore_eos,
                    "Answers of the length asked for (on; OpenAI's own servers do not know it)");
  command->add_option("--seed", a->seed, "Of arrivals, lengths and prompts")->capture_default_str();
  command->add_option("--ttft-ms", a->ttft_ms, "Target of the first token (2500)")
      ->check(CLI::PositiveNumber);
  command->add_option("--itl-ms", a->itl_ms, "Target of the time per output token (100)")
      ->check(CLI::PositiveNumber);
  command->add_option("--html", a->html, "Write a page with curves to this file");
  command->add_flag("--json", a->json, "End with one JSON line");
  command->add_flag("--advise",
                    a->advise,
                    "Start clusters here instead: prefill to decode ratio, split or colocated");
  command->add_option("--workload", a->workloads, "For the advice: ISL/OSL (200/200 and 4000/100)")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--nodes", a->advice.nodes, "For the advice: nodes to share out")
      ->capture_default_str()
      ->check(CLI::Range(2, 4096));
  command->add_option("--load", a->advice.load_share, "For the advice: part of what a pair bears")
      ->capture_default_str()
      ->check(CLI::Range(0.05, 2.0));
  command->add_option("--prefill-cores", a->advice.prefill_cores, "For the advice: processors");
  command->add_option("--decode-cores", a->advice.decode_cores, "For the advice: processors");
  command->add_option("--set", a->advice.set, "For the advice: KEY=VALUE over the configuration")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--run-dir", a->advice.run_folder, "For the advice: folder of logs");
  command->footer(
      "Requests leave when they are due, whether earlier ones were answered or not; times count\n"
      "from then. A good answer is whole, with its first token and its time per output token\n"
      "within the targets; goodput is good answers a second. A key is taken from BATON_API_KEY.\n"
      "--advise measures on this machine what a prefill node and a decode node bear, then offers\n"
      "the same requests to one pair of nodes and to one node that does both. Without targets\n"
      "it takes 5 times the TTFT and 3 times the time per token of a request alone.\n"
      "Examples:\n"
      "  baton bench serve --rate 2 --isl 100-300 --osl 64 --json\n"
      "  baton bench serve --base-url http://10.0.0.2:8000/v1 --trace day.jsonl --html day.html\n"
      "  baton bench serve --advise\n"
      "  baton bench serve --advise --workload 1000/50 --nodes 16");
  command->callback(
      [a, &chosen] { chosen = [a] { return a->advise ? run_advise(*a) : run_load(*a); }; });
}

}  // namespace baton::cli
