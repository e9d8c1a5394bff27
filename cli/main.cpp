// baton: the command-line tool. Parses the arguments and runs the chosen subcommand.
#include <fmt/format.h>

#include <csignal>
#include <exception>

#include "cli/command.h"
#include "common/base/version.h"

namespace baton::cli {

int report(const std::string& command, const Error& error) {
  fmt::print(stderr, "baton {}: {}\n", command, error.message);
  return error.code == ErrorCode::InvalidConfig ? kUsage : kFailed;
}

}  // namespace baton::cli

int main(int argc, char** argv) {
  using namespace baton::cli;
  std::signal(SIGPIPE, SIG_IGN);  // a peer that closes is an error of the call that notices
  CLI::App app("Baton: a language-model cluster with prefill and decode on separate nodes",
               "baton");
  app.set_version_flag("--version", fmt::format("baton {}", baton::version()));
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 the operation failed; 2 wrong arguments or configuration; "
      "130 interrupted.\n`baton COMMAND --help` shows options and examples.");
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
    fmt::print(stderr, "baton: there is no command '{}'; baton --help lists them\n", argv[1]);
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
