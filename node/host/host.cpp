// Order of ends: drain (bounded), role.stop on the strand, admin server, engine thread, transport's
// reactor, control thread, then the role and what it stood on.
#include "node/host/host.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <future>
#include <optional>
#include <utility>

#include "common/base/cores.h"
#include "common/base/host_port.h"
#include "common/exec/asio_executor.h"
#include "common/obs/admin_server.h"
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
  std::vector<std::string> overrides;
  bool announce = false;
};

int report(const RoleInfo& info, const Error& error) {
  fmt::print(stderr, "{}: {}\n", info.program, error.message);
  return error.code == ErrorCode::InvalidConfig ? kUsage : kFailed;
}

Result<NodeEntry> find_entry(const std::vector<NodeEntry>& pool,
                             const RoleInfo& info,
                             const std::string& name) {
  if (pool.empty()) {
    return fail(ErrorCode::InvalidConfig, info.role + ".pool names no node");
  }
  if (name.empty() && pool.size() == 1) {
    return pool.front();
  }
  std::vector<std::string> names;
  for (const NodeEntry& entry : pool) {
    if (entry.name == name) {
      return entry;
    }
    names.push_back(entry.name);
  }
  return fail(ErrorCode::InvalidConfig,
              fmt::format("{}.pool has no node '{}'; --name must be one of: {}",
                          info.role,
                          name,
                          fmt::join(names, ", ")));
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
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    wait();
  }
  void wait_for_end() { ended_.get_future().wait(); }

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (!error) {
        on_signal(signal);
      }
    });
  }
  void on_signal(int signal) {
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

bool is_loopback(const std::string& address) {
  const auto parsed = HostPort::parse(address);
  return parsed &&
         (parsed->host.starts_with("127.") || parsed->host == "::1" || parsed->host == "localhost");
}

// Every address that the file names is this host's own.
bool stays_on_this_host(const ClusterConfig& config) {
  const auto is_here = [](const NodeEntry& node) {
    return is_loopback(node.control_listen) &&
           (node.advertise.empty() || is_loopback(node.advertise));
  };
  return std::ranges::all_of(config.cluster.gateways, is_loopback) &&
         std::ranges::all_of(config.prefill.pool, is_here) &&
         std::ranges::all_of(config.decode.pool, is_here);
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

Status serve(const Arguments& arguments, const RoleInfo& info) {
  BATON_ASSIGN(ClusterConfig loaded, load_config(arguments.config, arguments.overrides));
  if (loaded.transfer.network.empty() && loaded.transfer.transport != "rdma" &&
      stays_on_this_host(loaded)) {
    loaded.transfer.network = "lo";  // UCX would listen on every interface
  }
  const ClusterConfig config = std::move(loaded);
  BATON_ASSIGN(const NodeEntry entry, find_entry(*info.pool(config), info, arguments.name));
  BATON_ASSIGN(const std::vector<unsigned> cores, parse_cores(entry.engine.cores));
  BATON_TRY(stay_on(cores));
  BATON_ASSIGN(const Logger log, Logger::create({config.log.level, config.log.format, entry.name}));
  BATON_ASSIGN(
      const std::unique_ptr<ModelHost> model,
      ModelHost::load(config, entry.engine, info.max_step_tokens(config), info.may_draft, log));
  log.info("{}", model->describe());
  for (const std::string& note : model->notes()) {
    log.warn("model: {}", note);
  }

  Metrics metrics;
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
  ControlThread control("control");
  ControlThread engine("engine");
  ControlThread compiling("grammars");
  ControlThread masks("masks");
  std::optional<ControlThread> copier;
  BATON_ASSIGN(const std::unique_ptr<engine::FileTier> tier,
               make_tier(config, info, model->kv(), control.executor(), copier));
  TcpNetwork network(control.executor(), log);
  Grammars grammars(control.executor(),
                    compiling.executor(),
                    masks.executor(),
                    model->artifacts().bytes("tokenizer"),
                    model->identity().vocab_size());
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
                            .grammars = &grammars});
  Status started;
  std::optional<Ending> ending;
  control.run_and_wait([&] {
    prefer_short_turns();
    started = role->start();
    ending.emplace(control.executor(), *role, log);
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
    log.info("ready: control {}, admin http://{}",
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
  control.run_and_wait([&] { ending.reset(); });
  control.stop();
  role.reset();
  return started;
}

}  // namespace

int run_node(int argc, char** argv, const RoleInfo& info) {
  Arguments arguments;
  CLI::App app(info.description, info.program);
  app.add_option("--config", arguments.config, "cluster.yaml")->capture_default_str();
  app.add_option("--name", arguments.name, "which node of " + info.role + ".pool this is");
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
                  info.program,
                  info.role));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    const Status status = serve(arguments, info);
    return status ? 0 : report(info, status.error());
  } catch (const std::exception& error) {
    return report(info, {ErrorCode::Internal, error.what()});
  }
}

}  // namespace baton::node
