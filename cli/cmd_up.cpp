// baton up: runs the cluster of a configuration as child processes, until Ctrl-C or until a command
// given behind `--` ends.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/cluster/config_notes.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "common/config/catalogue.h"

namespace baton::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kGrace{10'000};
constexpr milliseconds kNoteEvery{3'000};

struct UpArguments {
  std::string config = "cluster.yaml";
  std::vector<std::string> overrides;
  std::string run_dir;
  bool free_ports = false;
  bool stop_on_death = false;
  int ready_timeout = 120;
  std::vector<std::string> command;
};

// People read stderr; stdout belongs to the command behind `--`.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print(stderr, "{}\n", fmt::format(text, std::forward<Args>(args)...));
}

std::string default_run_dir() {
  return (std::filesystem::temp_directory_path() / fmt::format("baton-up-{}", getpid())).string();
}

// Waits until a member dies, the command ends or a signal comes.
void wait_for_news(const LocalCluster& cluster,
                   const ChildProcess* command,
                   const SignalWatch& signals) {
  std::vector<pollfd> watched{{signals.fd(), POLLIN, 0}};
  for (const LocalCluster::Member& member : cluster.members()) {
    if (!member.exit) {
      watched.push_back({member.process.watch_fd(), POLLIN, 0});
    }
  }
  if (command != nullptr) {
    watched.push_back({command->watch_fd(), POLLIN, 0});
  }
  ::poll(watched.data(), watched.size(), -1);
}

// Says loudly who died; true when anybody did.
bool tell_deaths(LocalCluster& cluster) {
  const auto dead = cluster.newly_dead();
  for (const LocalCluster::Member* member : dead) {
    say("!!!! {}", LocalCluster::obituary(*member));
    say("!!!! start it again with: {}", fmt::join(member->command, " "));
  }
  return !dead.empty();
}

int serve(LocalCluster& cluster, const UpArguments& arguments, SignalWatch& signals) {
  std::unique_ptr<ChildProcess> command;
  if (!arguments.command.empty()) {
    ChildOptions child;
    child.command = arguments.command;
    child.own_group = false;  // it belongs to the terminal
    child.environment = {{"BATON_BASE_URL", cluster.base_url() + "/v1"}};
    Result<ChildProcess> started = ChildProcess::start(child);
    if (!started) {
      return report("up", started.error());
    }
    command = std::make_unique<ChildProcess>(std::move(*started));
  }
  while (true) {
    wait_for_news(cluster, command.get(), signals);
    if (const auto number = signals.take()) {
      if (command == nullptr) {
        say("");
        return kDone;
      }
      if (*number != SIGINT) {  // Ctrl-C reaches the command by itself
        command->stop(kGrace);
        return 128 + *number;
      }
    }
    const bool died = tell_deaths(cluster);
    if (command != nullptr) {
      if (const auto end = command->poll_exit()) {
        return end->shell_status();
      }
    }
    if (died && arguments.stop_on_death) {
      return kFailed;
    }
    if (std::ranges::all_of(cluster.members(),
                            [](const auto& member) { return member.exit.has_value(); })) {
      say("every process of the cluster has ended");
      return kFailed;
    }
  }
}

// Of a file that was named without its option; else empty.
std::string misplaced_config(const std::vector<std::string>& command) {
  std::error_code error;
  if (command.size() != 1 || !std::filesystem::is_regular_file(command.front(), error)) {
    return {};
  }
  const auto extension = std::filesystem::path(command.front()).extension();
  return extension == ".yaml" || extension == ".yml" ? command.front() : std::string();
}

// The logs are of use only where something went wrong, and in a folder that was asked for.
void tidy(const LocalCluster& cluster, bool asked_for, bool is_well) {
  const bool all_clean = std::ranges::all_of(
      cluster.members(),
      [](const LocalCluster::Member& member) { return member.exit && member.exit->clean(); });
  std::error_code error;
  if (!asked_for && is_well && all_clean) {
    std::filesystem::remove_all(cluster.run_folder(), error);
  } else {
    say("    logs are in {}", cluster.run_folder());
  }
}

int run(const UpArguments& arguments) {
  if (const std::string file = misplaced_config(arguments.command); !file.empty()) {
    return report("up",
                  {ErrorCode::InvalidConfig,
                   fmt::format("{} is no command to run; did you mean --config {}?", file, file)});
  }
  const Result<ClusterConfig> config = load_config(arguments.config, arguments.overrides);
  if (!config) {
    return report("up", config.error());
  }
  const auto model = resolve_model_path(config->model, CataloguePlaces::from_environment());
  if (!model) {
    return report("up", model.error());
  }
  if (const std::string note = gateway_port_note(*config); !note.empty() && !arguments.free_ports) {
    fmt::print(stderr, "baton up: note: {}\n", note);
  }
  SignalWatch signals;
  LocalClusterOptions options;
  options.config_file = arguments.config;
  options.overrides = arguments.overrides;
  options.bin_folder = program_folder();
  options.run_folder = arguments.run_dir.empty() ? default_run_dir() : arguments.run_dir;
  options.free_ports = arguments.free_ports;
  auto cluster = LocalCluster::start(options);
  if (!cluster) {
    return report("up", cluster.error());
  }
  for (const LocalCluster::Member& member : (*cluster)->members()) {
    say("    started {:<10} pid {:<7} log {}", member.name, member.process.pid(), member.log);
  }
  const auto from = steady_clock::now();
  auto noted = from;
  const Status ready = (*cluster)->wait_ready(std::chrono::seconds{arguments.ready_timeout},
                                              [&](const std::string& line) {
                                                if (steady_clock::now() - noted > kNoteEvery) {
                                                  noted = steady_clock::now();
                                                  say("    {}", line);
                                                }
                                                return signals.take().has_value();
                                              });
  if (!ready) {
    (*cluster)->stop(kGrace);
    report("up", ready.error());
    if (ready.error().code == ErrorCode::Cancelled) {
      tidy(**cluster, !arguments.run_dir.empty(), true);
    }
    return ready.error().code == ErrorCode::Cancelled ? kInterrupted : kFailed;
  }
  say("    ready after {:.1f} s; OpenAI base URL: {}/v1",
      std::chrono::duration<double>(steady_clock::now() - from).count(),
      (*cluster)->base_url());
  say("    dashboard: {}/", (*cluster)->admin_url());
  if (arguments.command.empty()) {
    fmt::print("{}/v1\n", (*cluster)->base_url());
    std::fflush(stdout);
    say("    Ctrl-C stops everything");
  }
  const int status = serve(**cluster, arguments, signals);
  (*cluster)->stop(kGrace);
  say("    stopped");
  tidy(**cluster, !arguments.run_dir.empty(), status == kDone);
  return status;
}

}  // namespace

void add_up(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<UpArguments>();
  CLI::App* command = app.add_subcommand("up", "Run a whole cluster on this machine");
  command->add_option("--config", arguments->config, "Cluster configuration")
      ->capture_default_str();
  command->add_option("--set", arguments->overrides, "Override, key=value; may be repeated")
      ->allow_extra_args(false);
  command->add_option(
      "--run-dir",
      arguments->run_dir,
      "Folder of the logs (default: a new one in /tmp, removed when all ended well)");
  command->add_flag(
      "--free-ports", arguments->free_ports, "Replace busy gateway ports by free ones");
  command->add_flag("--stop-on-death,!--keep-going",
                    arguments->stop_on_death,
                    "Stop everything when a process dies (default: say so and keep the rest)");
  command->add_option("--ready-timeout", arguments->ready_timeout, "Seconds to wait until ready")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  command
      ->add_option("command",
                   arguments->command,
                   "Run this, with BATON_BASE_URL (http://host:port/v1) set, then stop")
      ->option_text("-- COMMAND ...");
  command->footer(
      "Processes that die are not started again; what died, how, and its last log lines are told.\n"
      "Examples:\n"
      "  baton up --config configs/local.yaml\n"
      "  baton up --config configs/local.yaml --set decode.max_batch=8\n"
      "  baton up --config configs/local.yaml --free-ports -- baton chat");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
