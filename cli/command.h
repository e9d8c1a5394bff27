// How a subcommand of `baton` hangs on the program: it adds itself to the parser and, when chosen,
// leaves the action to run. One file a subcommand.
//
// Exit status of every subcommand: 0 done; 1 the operation failed; 2 wrong arguments or
// configuration; 130 interrupted.
//
// Thread: main. Failure: an action prints one "baton NAME: sentence" line to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "common/base/error.h"

namespace baton::cli {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;

using Action = std::function<int()>;

void add_up(CLI::App& app, Action& chosen);
void add_chat(CLI::App& app, Action& chosen);
void add_status(CLI::App& app, Action& chosen);
void add_pull(CLI::App& app, Action& chosen);
void add_check(CLI::App& app, Action& chosen);
void add_drain(CLI::App& app, Action& chosen);
void add_key(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_perplexity(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_rules(CLI::App& app, Action& chosen);
void add_trace(CLI::App& app, Action& chosen);

// Subcommands of `baton bench`.
void add_bench_engine(CLI::App& group, Action& chosen);
void add_bench_gateway(CLI::App& group, Action& chosen);
void add_bench_interference(CLI::App& group, Action& chosen);
void add_bench_grammar(CLI::App& group, Action& chosen);
void add_bench_pools(CLI::App& group, Action& chosen);
void add_bench_route(CLI::App& group, Action& chosen);
void add_bench_serve(CLI::App& group, Action& chosen);
void add_bench_tokenizer(CLI::App& group, Action& chosen);
void add_bench_transfer(CLI::App& group, Action& chosen);

// Prints "baton NAME: message" and gives the exit status that fits the error.
int report(const std::string& command, const Error& error);

}  // namespace baton::cli
