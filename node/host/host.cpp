// Order of ends: drain (bounded), role.stop on the strand, admin server, engine thread, transport's
// reactor, control thread, then the role and what it stood on.
#include "node/host/host.h"

#include <fmt/format.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/cores.h"
#include "common/base/file_limit.h"
#include "common/base/version.h"
#include "common/config/hosts.h"
#include "common/exec/asio_executor.h"
#include "common/obs/admin_server.h"
#include "common/obs/line_writer.h"
#include "common/rpc/control_tls.h"
#include "common/rpc/tcp_network.h"
#include "node/host/model_host.h"

namespace baton::node {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr std::chrono::seconds kDrainLimit{5};   // then requests go back to their gateways
constexpr std::chrono::seconds kEndLimit{7};     // transfers have ended by then, or end with us
constexpr std::chrono::seconds kStrandLimit{2};  // an answer to the admin server

struct Arguments {
  std::string config = "cluster.yaml";
  std::string name;
  std::string role;  // empty: that of the pool which names the node
  std::vector<std::string> overrides;
  bool announce = false;
};

int report(const NodeProgram& program, const Error& error) {
  stderr_lines().push(fmt::format("{}: {}\n", program.name, error.message));
  return error.code == ErrorCode::InvalidConfig ? kUsage : kFailed;
}

struct Place {
  NodeEntry entry;
  const RoleInfo* role;  // of the pool that has it
};

Result<Place> find_place(const ClusterConfig& config,
                         const NodeProgram& program,
                         const std::string& name) {
  std::vector<Place> places;
  std::vector<std::string> names;
  std::vector<std::string> pools;
  for (const RoleInfo& info : program.roles) {
    pools.push_back(info.role + ".pool");
    for (const NodeEntry& entry : *info.pool(config)) {
      places.push_back({entry, &info});
      names.push_back(entry.name);
    }
  }
  const std::string where = fmt::format("{}", fmt::join(pools, ", "));
  if (places.empty()) {
    return fail(ErrorCode::InvalidConfig, where + " names no node");
  }
  if (name.empty() && places.size() == 1) {
    return places.front();
  }
  const auto found =
      std::ranges::find(places, name, [](const Place& place) { return place.entry.name; });
  if (found != places.end()) {
    return *found;
  }
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  return fail(
      ErrorCode::InvalidConfig,
      name.empty()
          ? fmt::format("{} has several nodes; say by --name which is meant: {}", where, known)
          : fmt::format("{} has no node '{}'; --name must be one of: {}", where, name, known));
}

// Runs `question` on the strand from another thread; `fallback` when the strand does not answer.
template <class T>
T ask(Executor& executor, std::function<T()> question, T fallback) {
  auto answer = std::make_shared<std::promise<T>>();
  auto future = answer->get_future();
  executor.post([answer, question = std::move(question)] { answer->set_value(question()); });
  return future.wait_for(kStrandLimit) == std::future_status::ready ? future.get() : fallback;
}

// Lives until the first of: drained after a signal, the drain limit, a second signal.
class Ending {
 public:
  Ending(AsioExecutor& executor, Role& role, const Logger& log)
      : executor_(executor), role_(role), log_(log), signals_(executor.strand()) {
    signals_.add(SIGHUP);
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    wait();
  }
  void wait_for_end() { ended_.get_future().wait(); }
  // On the strand, with nothing in work: ends, to come back with that role.
  void end_for(const std::string& role) {
    next_role_ = role;
    end();
  }
  // On the strand, after the end. Empty: for good; a signal counts more than a change of role.
  std::string next_role() const { return is_draining_ ? std::string() : next_role_; }

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (!error) {
        on_signal(signal);
      }
    });
  }
  void on_signal(int signal) {
    if (signal == SIGHUP) {
      log_.info("SIGHUP changes nothing here: a node reads its configuration at the start alone");
      return wait();
    }
    if (std::exchange(is_draining_, true)) {
      end();
      return;
    }
    log_.info("signal {}: finishing what is in work", signal);
    limit_ = executor_.call_after(kEndLimit, [this] {
      log_.warn("requests are still in work; they end with an error");
      end();
    });
    wait();
    role_.drain(kDrainLimit, [this] { end(); });
  }
  void end() {
    if (!std::exchange(has_ended_, true)) {
      limit_.cancel();
      ended_.set_value();
    }
  }

  AsioExecutor& executor_;
  Role& role_;
  const Logger& log_;
  boost::asio::signal_set signals_;
  TimerHandle limit_;
  bool is_draining_ = false;
  bool has_ended_ = false;
  std::string next_role_;
  std::promise<void> ended_;
};

AdminHandlers admin_handlers(ControlThread& control, Role& role, const Metrics& metrics) {
  AdminHandlers handlers;
  handlers.metrics = [&metrics] { return metrics.to_text(); };
  handlers.live = [&control] {
    const bool alive = ask<bool>(
        control.executor(), [] { return true; }, false);
    return AdminHandlers::Answer{alive, alive ? "alive" : "the control thread does not answer"};
  };
  handlers.ready = [&control, &role] {
    const bool ready = ask<bool>(
        control.executor(), [&role] { return role.is_ready(); }, false);
    return AdminHandlers::Answer{ready, ready ? "ready" : "not registered with a gateway"};
  };
  return handlers;
}

// Null where there is none; else `copier` runs, too.
Result<std::unique_ptr<engine::FileTier>> make_tier(const ClusterConfig& config,
                                                    const RoleInfo& info,
                                                    engine::KvMemory& kv,
                                                    Executor& control,
                                                    std::optional<ControlThread>& copier) {
  if (config.kv.file_tier.empty() || info.role != "prefill") {
    return nullptr;
  }
  BATON_ASSIGN(
      engine::TierFile file,
      engine::TierFile::create(
          config.kv.file_tier, config.kv.file_tier_mb, kv.layout().block_bytes_all_layers()));
  copier.emplace("kv-copier");
  return std::make_unique<engine::FileTier>(kv, control, copier->executor(), std::move(file));
}

// Gives the role that the node is to come back with; empty: none, it was stopped.
Result<std::string> serve(const Arguments& arguments, const NodeProgram& program) {
  BATON_ASSIGN(ClusterConfig loaded, load_config(arguments.config, arguments.overrides));
  if (loaded.transfer.network.empty() && loaded.transfer.transport != "rdma" &&
      stays_on_one_host(loaded)) {
    loaded.transfer.network = "lo";  // UCX would listen on every interface
  }
  const ClusterConfig config = std::move(loaded);
  BATON_ASSIGN(const Place place, find_place(config, program, arguments.name));
  const NodeEntry& entry = place.entry;
  const auto asked = std::ranges::find(program.roles, arguments.role, &RoleInfo::role);
  const RoleInfo& info = asked != program.roles.end() ? *asked : *place.role;
  BATON_ASSIGN(const std::vector<unsigned> cores, parse_cores(entry.engine.cores));
  BATON_TRY(stay_on(cores));
  BATON_ASSIGN(const Logger log, Logger::create({config.log.level, config.log.format, entry.name}));
  const ControlTlsSection& named = config.cluster.tls;
  const ControlTlsFiles files{named.certificate, named.key, named.authority};
  BATON_ASSIGN(std::shared_ptr<ControlTls> tls, ControlTls::load(files, log));
  BATON_ASSIGN(
      const std::unique_ptr<ModelHost> model,
      ModelHost::load(config, entry.engine, info.max_step_tokens(config), info.may_draft, log));
  log.info("{}", model->describe());
  for (const std::string& note : model->notes()) {
    log.warn("model: {}", note);
  }

  Metrics metrics;
  export_dropped_lines(metrics);
  const RandomSource random = system_random();
  NodeIdentity identity{.name = entry.name,
                        .role = info.role,
                        .incarnation = Incarnation{random()},
                        .cluster_token = config.cluster.token,
                        .ucx_version = model->transport().ucx_version(),
                        .model = model->identity(),
                        .control_address = ""};
  // Destroyed bottom up: first what computes and calls back, the role last.
  std::unique_ptr<Role> role;
  std::optional<Ending> ending;
  ControlThread control("control");
  ControlThread engine("engine");
  ControlThread compiling("grammars");
  ControlThread masks("masks");
  std::optional<ControlThread> copier;
  BATON_ASSIGN(const std::unique_ptr<engine::FileTier> tier,
               make_tier(config, info, model->kv(), control.executor(), copier));
  TcpNetwork network(
      control.executor(), log, RpcOptions{.tls = std::move(tls), .refused = RefusedProbe(metrics)});
  Grammars grammars(control.executor(),
                    compiling.executor(),
                    masks.executor(),
                    model->artifacts().bytes("tokenizer"),
                    model->identity().vocab_size());
  std::function<void(const std::string&)> change_role;
  if (program.roles.size() > 1 && entry.any_role) {
    change_role = [&ending](const std::string& next) { ending->end_for(next); };
  }
  role = info.make(RoleDeps{.control = control.executor(),
                            .engine = engine.executor(),
                            .network = network,
                            .transport = model->transport(),
                            .runner = model->runner(),
                            .kv = model->kv(),
                            .artifacts = model->artifacts(),
                            .config = config,
                            .entry = entry,
                            .identity = std::move(identity),
                            .metrics = metrics,
                            .log = log,
                            .random = random,
                            .digest = model->digest(),
                            .tier = tier.get(),
                            .grammars = &grammars,
                            .change_role = std::move(change_role)});
  Status started;
  control.run_and_wait([&] {
    prefer_short_turns();
    ending.emplace(control.executor(), *role, log);
    started = role->start();
  });
  std::unique_ptr<AdminServer> admin;
  if (started) {
    auto server = AdminServer::start(entry.admin_listen, admin_handlers(control, *role, metrics));
    if (server) {
      admin = std::move(*server);
    } else {
      started = std::unexpected(server.error());
    }
  }
  if (started) {
    log.info("ready as a {} node: control {}, admin http://{}",
             info.role,
             role->control_address().empty() ? "-" : role->control_address(),
             admin->address());
    if (arguments.announce) {
      fmt::print(R"({{"ready":true,"node":"{}","control":"{}","admin":"{}"}})"
                 "\n",
                 entry.name,
                 role->control_address(),
                 admin->address());
      std::fflush(stdout);
    }
    ending->wait_for_end();
  }
  control.run_and_wait([&] { role->stop(); });
  admin.reset();
  engine.stop();
  compiling.stop();
  masks.stop();
  if (copier) {
    copier->stop();
  }
  model->transport().stop();
  std::string next;
  control.run_and_wait([&] {
    next = ending->next_role();
    ending.reset();
  });
  control.stop();
  role.reset();
  BATON_TRY(started);
  if (!next.empty()) {
    log.info("drained; comes back as a {} node", next);
  }
  return next;
}

// The program anew, with the same arguments but for the role. Comes back only with an error.
Error execute_as(const std::string& role, int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--role") {
      ++i;
    } else {
      arguments.emplace_back(argv[i]);
    }
  }
  arguments.insert(arguments.end(), {"--role", role});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  // No connection or device of this life may stay open in the next one.
  stderr_lines().flush();
  constexpr unsigned kAfterStderr = 3;
  ::close_range(kAfterStderr, ~0U, CLOSE_RANGE_CLOEXEC);
  std::error_code gone;  // the file may have been replaced meanwhile
  const std::string file = std::filesystem::read_symlink("/proc/self/exe", gone).string();
  ::execv(file.c_str(), pointers.data());
  ::execv("/proc/self/exe", pointers.data());
  return {ErrorCode::IoError,
          fmt::format("cannot execute itself anew: {}", std::generic_category().message(errno))};
}

}  // namespace

int run_node(int argc, char** argv, const NodeProgram& program) {
  keep_standard_files();
  Arguments arguments;
  CLI::App app(program.description, program.name);
  app.set_version_flag("--version", fmt::format("{} {}", program.name, version()));
  std::vector<std::string> roles;
  for (const RoleInfo& info : program.roles) {
    roles.push_back(info.role);
  }
  app.add_option("--config", arguments.config, "cluster.yaml")->capture_default_str();
  app.add_option("--name",
                 arguments.name,
                 fmt::format("which node of {}.pool this is", fmt::join(roles, ".pool or ")));
  if (roles.size() > 1) {
    app.add_option("--role", arguments.role, "its first role (default: that of its pool)")
        ->check(CLI::IsMember(roles));
  }
  app.add_option("--set", arguments.overrides, "KEY=VALUE over the file; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--announce",
               arguments.announce,
               "print one JSON line with the addresses to stdout when ready");
  app.footer(
      fmt::format("Examples:\n"
                  "  {0} --config configs/local.yaml --name {1}-0\n"
                  "  {0} --config cluster.yaml --set kv.arena_mb=256 --set log.level=debug\n"
                  "Exit status: 0 stopped by SIGTERM or SIGINT; 1 could not start; 2 wrong "
                  "arguments or configuration.",
                  program.name,
                  roles.front()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    const Result<std::string> next = serve(arguments, program);
    if (!next) {
      return report(program, next.error());
    }
    return next->empty() ? 0 : report(program, execute_as(*next, argc, argv));
  } catch (const std::exception& error) {
    return report(program, {ErrorCode::Internal, error.what()});
  }
}

}  // namespace baton::node
