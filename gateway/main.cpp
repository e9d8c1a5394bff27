// baton-gateway: reads cluster.yaml, serves until SIGTERM or SIGINT, then drains. SIGHUP reads
// the objectives again, and the files that the configuration names.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <string>
#include <vector>

#include "common/base/file_limit.h"
#include "common/base/version.h"
#include "common/config/cluster_config.h"
#include "common/config/gateways.h"
#include "common/obs/line_writer.h"
#include "gateway/gateway.h"

namespace {

constexpr int kUsage = 2;  // exit status of a wrong command line or configuration

int fail(const baton::Error& error) {
  baton::stderr_lines().push(fmt::format("baton-gateway: {}\n", error.message));
  return error.code == baton::ErrorCode::InvalidConfig ? kUsage : 1;
}

baton::Result<baton::ClusterConfig> read_config(const std::string& path,
                                                const std::vector<std::string>& overrides,
                                                const std::string& name) {
  auto config = baton::load_config(path, overrides);
  if (!config) {
    return config;
  }
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return baton::as_gateway(std::move(*config), name, host);
}

// Large bodies are mapped on their own and go back to the system at once; the memory of usual ones
// is kept. Left alone, glibc learns from the largest body it has seen to keep as much for good.
void bound_kept_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

// Blocks our signals in every thread made from here on; `wait` takes them one by one.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGHUP);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }
  int wait() const {
    int number = 0;
    sigwait(&set_, &number);
    return number;
  }
  // The next SIGINT or SIGTERM ends the process at once; SIGHUP means nothing any more.
  void release() const {
    std::signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_{};
};

}  // namespace

int main(int argc, char** argv) {
  baton::keep_standard_files();
  std::string config_path = "cluster.yaml";
  std::string name;
  std::vector<std::string> overrides;
  CLI::App app{"Baton's gateway: the OpenAI API in front of prefill and decode nodes",
               "baton-gateway"};
  app.set_version_flag("--version", fmt::format("baton-gateway {}", baton::version()));
  app.add_option("--config", config_path, "Cluster configuration")->capture_default_str();
  app.add_option("--name",
                 name,
                 "Which of gateway.pool, where it has several; without it any name of its own");
  app.add_option("--set", overrides, "key=value, over the file; may be repeated");
  app.footer(
      "SIGTERM drains, a second one ends at once; SIGHUP reads configuration, keys and "
      "certificate\n"
      "again (docs/operations.md).\n"
      "Exit status: 0 stopped by SIGTERM or SIGINT; 1 could not start; 2 wrong arguments or\n"
      "configuration.\n"
      "Examples:\n"
      "  baton-gateway --config configs/local.yaml\n"
      "  baton-gateway --config cluster.yaml --name gateway-1\n"
      "  baton-gateway --config cluster.yaml --set gateway.listen=0.0.0.0:8000 --set "
      "log.level=debug");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  bound_kept_memory();
  const auto config = read_config(config_path, overrides, name);
  if (!config) {
    return fail(config.error());
  }
  const auto log =
      baton::Logger::create({config->log.level, config->log.format, config->gateway.name});
  if (!log) {
    return fail(log.error());
  }
  baton::raise_file_limit();  // a file for each client
  const Signals signals;
  auto gateway = baton::gateway::Gateway::start(*config, *log);
  if (!gateway) {
    return fail(gateway.error());
  }
  while (signals.wait() == SIGHUP) {
    if (const auto again = read_config(config_path, overrides, name)) {
      (*gateway)->reload(*again);
    } else {
      log->error("the configuration stays as it was: {}", again.error().message);
      (*gateway)->reload_files();
    }
  }
  log->info("draining");
  signals.release();
  (*gateway)->drain(config->gateway.drain_timeout);
  (*gateway)->stop();
  log->info("stopped");
  return 0;
}
