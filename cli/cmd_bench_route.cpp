// baton bench route: replays a trace against simulated nodes and compares routing policies.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "bench/route/route_bench.h"
#include "cli/command.h"

namespace baton::cli {
namespace {

struct RouteArguments {
  bench::ReplayOptions options;
  bench::TraceShape shape;
  std::string trace_file;
  std::string write_file;
  bool json = false;
  bool markdown = false;
};

int run(const RouteArguments& arguments) {
  bench::Trace trace;
  if (arguments.trace_file.empty()) {
    trace = bench::make_trace(arguments.shape);
  } else {
    auto read = bench::read_trace(arguments.trace_file);
    if (!read) {
      return report("bench route", read.error());
    }
    trace = std::move(*read);
  }
  if (!arguments.write_file.empty()) {
    std::ofstream file(arguments.write_file);
    file << bench::to_jsonl(trace);
    file.close();
    if (!file) {
      return report(
          "bench route",
          Error{ErrorCode::IoError, fmt::format("cannot write '{}'", arguments.write_file)});
    }
    return kDone;
  }
  const bench::RouteReport result =
      bench::run_route_bench(trace, arguments.options, [](std::string_view line) {
        fmt::print(stderr, "    {}\n", line);
      });
  fmt::print("{}", arguments.markdown ? to_markdown(result) : to_table(result));
  if (arguments.json) {
    fmt::print("{}\n", to_json(result));
  }
  return result.broken.empty() ? kDone : kFailed;
}

}  // namespace

void add_bench_route(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<RouteArguments>();
  arguments->options.cache_blocks = 0;
  bench::ReplayOptions& options = arguments->options;
  bench::TraceShape& shape = arguments->shape;
  CLI::App* command =
      group.add_subcommand("route", "Compare routing policies on a trace, with simulated nodes");
  command->add_option("--trace",
                      arguments->trace_file,
                      "JSONL: timestamp (ms), input_length, output_length, hash_ids (blocks of 512 "
                      "tokens); without it one is made");
  command->add_option("--write-trace", arguments->write_file, "Only write the trace to this file");
  command->add_option("--prefill-nodes", options.prefill_nodes)
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--decode-nodes", options.decode_nodes)
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--cache-blocks",
                      options.cache_blocks,
                      "Of each prefill node; 0: a third and twice of what the trace shares");
  command->add_option("--decode-blocks", options.decode_blocks, "Of each decode node")
      ->capture_default_str();
  command->add_option("--credits", options.credits, "Requests in work on a prefill node")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--requests", shape.requests, "Of the trace that is made")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--rate", shape.rate, "Requests a second")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6));
  command->add_option("--groups", shape.groups, "Different prefixes")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--zipf", shape.zipf, "Exponent of their popularity")->capture_default_str();
  command->add_option("--seed", shape.seed, "Of the trace and of the nodes' noise")
      ->capture_default_str();
  command->add_flag("--markdown", arguments->markdown, "The table for a page");
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "The nodes' times come from a model with noise of its own; the gateway in between is the "
      "real "
      "router.\n"
      "Ends with 1 when P90 TTFT is not ours <= precise <= approximate <= random with scarce "
      "caches, "
      "or hits\n"
      "are more than 5 % below an unlimited cache's with ample ones.\n"
      "Examples:\n"
      "  baton bench route\n"
      "  baton bench route --trace conversations.jsonl --cache-blocks 400 --json");
  command->callback([arguments, &chosen] {
    arguments->options.seed = arguments->shape.seed;
    chosen = [arguments] { return run(*arguments); };
  });
}

}  // namespace baton::cli
