// baton: the command-line tool. Parses the arguments and runs the chosen subcommand.
#include <fmt/format.h>

#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "cli/command.h"
#include "common/base/file_limit.h"
#include "common/base/nearest.h"
#include "common/base/version.h"

namespace baton::cli {
namespace {

// For a word that `command` does not know; empty when it is near to nothing.
std::string suggestion(const CLI::App& command, const std::string& wrong) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(below->get_name());
  }
  const auto best = nearest(wrong.substr(0, wrong.find('=')), known);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

// What is wrong with the arguments, and what the first that nobody took may have meant.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string text = CLI::FailureMessage::simple(app, error);
  const CLI::App* command = app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  if (const auto wrong = app->remaining(true); !wrong.empty()) {
    text.insert(text.find('\n'), suggestion(*command, wrong.front()));
  }
  return text;
}

}  // namespace

int report(const std::string& command, const Error& error) {
  fmt::print(stderr, "baton {}: {}\n", command, error.message);
  return error.code == ErrorCode::InvalidConfig ? kUsage : kFailed;
}

}  // namespace baton::cli

int main(int argc, char** argv) {
  using namespace baton::cli;
  baton::keep_standard_files();
  std::signal(SIGPIPE, SIG_IGN);  // a peer that closes is an error of the call that notices
  CLI::App app("Baton: a language-model cluster with prefill and decode on separate nodes",
               "baton");
  app.set_version_flag("--version", fmt::format("baton {}", baton::version()));
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 the operation failed; 2 wrong arguments or configuration; "
      "130 interrupted.\n`baton COMMAND --help` shows options and examples.");
  app.failure_message(usage_error);
  Action chosen;
  add_up(app, chosen);
  add_chat(app, chosen);
  add_status(app, chosen);
  add_trace(app, chosen);
  add_drain(app, chosen);
  add_key(app, chosen);
  add_pull(app, chosen);
  add_check(app, chosen);
  add_bench(app, chosen);
  add_perplexity(app, chosen);
  add_plan(app, chosen);
  add_rules(app, chosen);
  // CLI11 would only say that a subcommand is required.
  if (argc > 1 && argv[1][0] != '-' &&
      app.get_subcommands([&](CLI::App* command) { return command->check_name(argv[1]); })
          .empty()) {
    fmt::print(stderr,
               "baton: there is no command '{}'; baton --help lists them{}\n",
               argv[1],
               suggestion(app, argv[1]));
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? kDone : kUsage;
  }
  try {
    return chosen();
  } catch (const std::exception& error) {
    fmt::print(stderr, "baton: {}\n", error.what());
    return kFailed;
  }
}
