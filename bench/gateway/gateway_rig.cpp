#include "bench/gateway/gateway_rig.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/cluster/thread_times.h"
#include "common/base/cores.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
using cli::HeldAddress;

constexpr const char* kHost = "127.0.0.1";
constexpr const char* kToken = "bench";
constexpr std::chrono::seconds kReadyLimit{20};
constexpr std::chrono::milliseconds kReadyPause{10};

// What the calling thread starts meanwhile stays on one processor.
class OnCore {
 public:
  explicit OnCore(unsigned core) {
    CPU_ZERO(&before_);
    saved_ = ::sched_getaffinity(0, sizeof(before_), &before_) == 0;
    status_ = stay_on({core});
  }
  ~OnCore() {
    if (saved_) {
      (void)::sched_setaffinity(0, sizeof(before_), &before_);
    }
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;
  const Status& status() const { return status_; }

 private:
  cpu_set_t before_;
  bool saved_ = false;
  Status status_;
};

Result<std::unique_ptr<cli::ChildProcess>> start_on(unsigned core,
                                                    std::vector<std::string> command,
                                                    const std::string& log) {
  const OnCore pinned(core);
  BATON_TRY(pinned.status());
  BATON_ASSIGN(auto child,
               cli::ChildProcess::start(
                   {.command = std::move(command), .output_file = log, .append = false}));
  return std::make_unique<cli::ChildProcess>(std::move(child));
}

Result<std::string> get(const HostPort& api, const std::string& path) {
  httplib::Client client(api.host, api.port);
  const auto answer = client.Get(path);
  if (!answer || answer->status != 200) {
    return fail(ErrorCode::Unavailable, fmt::format("no {} from {}", path, api.to_string()));
  }
  return answer->body;
}

// Waits until `path` is answered well.
Status wait_for(const HostPort& api,
                const std::string& path,
                cli::ChildProcess& process,
                const std::string& log) {
  const auto end = std::chrono::steady_clock::now() + kReadyLimit;
  while (!get(api, path)) {
    const auto ended = process.poll_exit();
    if (ended || std::chrono::steady_clock::now() > end) {
      return fail(ErrorCode::Unavailable,
                  fmt::format("{}: {}; last lines of {}:\n{}",
                              api.to_string(),
                              ended ? ended->to_string() : "does not serve",
                              log,
                              cli::last_lines(log, 5)));
    }
    std::this_thread::sleep_for(kReadyPause);
  }
  return {};
}

double counter(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

}  // namespace

ProcessUse use_of(pid_t process) {
  ProcessUse use;
  for (const auto& [thread, time] : thread_times(process)) {
    use.cpu_us += static_cast<double>(time.run_ns) * 1e-3;
  }
  std::ifstream statm(fmt::format("/proc/{}/statm", process));
  double pages = 0;
  double resident = 0;
  statm >> pages >> resident;
  use.rss_kib = resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
  return use;
}

PromptCost PromptCost::operator-(const PromptCost& other) const {
  return {
      parse_us - other.parse_us, template_us - other.template_us, tokenize_us - other.tokenize_us};
}

Result<std::unique_ptr<GatewayRig>> GatewayRig::start(const RigOptions& options,
                                                      const NodePace& pace) {
  std::unique_ptr<GatewayRig> rig(new GatewayRig());
  BATON_ASSIGN(rig->api_, HeldAddress::hold(kHost));
  BATON_ASSIGN(rig->admin_, HeldAddress::hold(kHost));
  BATON_ASSIGN(rig->control_, HeldAddress::hold(kHost));
  const std::string control = rig->control_.address().to_string();
  fs::create_directories(options.run_folder);
  const std::string config = options.run_folder + "/cluster.yaml";
  std::ofstream(config) << fmt::format(
      "cluster: {{token: {}, gateways: [\"{}\"], suspect_after: 20, dead_after: 80}}\n"
      "gateway: {{listen: \"{}\", control_listen: \"{}\", admin_listen: \"{}\", "
      "queue_limit: 20000}}\n"
      "log: {{level: warn}}\n",
      kToken,
      control,
      rig->api().to_string(),
      control,
      rig->admin_.address().to_string());
  std::vector<std::string> command{options.bin_folder + "/baton-gateway", "--config", config};
  for (const std::string& entry : options.set) {
    command.insert(command.end(), {"--set", entry});
  }
  const std::string log = options.run_folder + "/gateway.log";
  BATON_ASSIGN(rig->gateway_, start_on(options.gateway_core, std::move(command), log));
  BATON_ASSIGN(rig->nodes_,
               start_on(options.other_core,
                        {options.bin_folder + "/baton-gateway-probe",
                         "nodes",
                         "--gateway",
                         control,
                         "--token",
                         kToken,
                         "--model",
                         options.model,
                         "--prefill-ms",
                         std::to_string(pace.prefill_ms),
                         "--token-gap-ms",
                         std::to_string(pace.token_gap_ms),
                         "--max-batch",
                         std::to_string(pace.max_batch),
                         "--credits",
                         std::to_string(pace.credits)},
                        options.run_folder + "/nodes.log"));
  BATON_TRY(wait_for(rig->api(), "/readyz", *rig->gateway_, log));
  return rig;
}

Result<PromptCost> GatewayRig::prompt_cost() const {
  BATON_ASSIGN(const std::string text, get(admin_.address(), "/metrics"));
  constexpr double kMicro = 1e6;
  const auto part = [&](const char* name) {
    return counter(text, fmt::format("baton_prompt_cpu_seconds_total{{part=\"{}\"}}", name)) *
           kMicro;
  };
  return PromptCost{part("parse"), part("template"), part("tokenize")};
}

Result<std::unique_ptr<BareRig>> BareRig::start(const RigOptions& options,
                                                const std::string& answer,
                                                unsigned core) {
  std::unique_ptr<BareRig> rig(new BareRig());
  BATON_ASSIGN(rig->api_, HeldAddress::hold(kHost));
  const std::string file = options.run_folder + "/answer";
  std::ofstream(file, std::ios::binary) << answer;
  const std::string log = options.run_folder + "/bare.log";
  std::vector<std::string> command{options.bin_folder + "/baton-gateway-probe",
                                   "bare",
                                   "--port",
                                   std::to_string(rig->api().port),
                                   "--answer",
                                   file};
  if (core == options.other_core) {
    command.emplace_back("--awake");
  }
  BATON_ASSIGN(rig->server_, start_on(core, std::move(command), log));
  BATON_TRY(wait_for(rig->api(), "/", *rig->server_, log));
  return rig;
}

namespace {

// One process, so that its CPU time is that of one; otherwise as it ships, but for limits that the
// load would meet.
std::string nginx_config(const std::string& folder, const HostPort& api, const HostPort& worker) {
  std::string temporary;
  for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
    temporary += fmt::format("  {0}_temp_path {1}/{0};\n", kind, folder);
  }
  return fmt::format(
      "daemon off;\nmaster_process off;\npid {0}/nginx.pid;\nerror_log {0}/nginx.err;\n"
      "events {{ worker_connections 20000; }}\n"
      "http {{\n  access_log off;\n  client_max_body_size 64m;\n  client_body_buffer_size 256k;\n"
      "  keepalive_requests 100000000;\n{1}"
      "  upstream worker {{ server {2}; keepalive 256; keepalive_requests 100000000; }}\n"
      "  server {{\n    listen {3};\n    location / {{\n      proxy_pass http://worker;\n"
      "      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n"
      "      proxy_buffering off;\n    }}\n  }}\n}}\n",
      folder,
      temporary,
      worker.to_string(),
      api.to_string());
}

Result<std::vector<std::string>> peer_command(const std::string& peer,
                                              const std::string& folder,
                                              const HostPort& api,
                                              const HostPort& worker) {
  if (peer == "nginx") {
    const std::string config = folder + "/nginx.conf";
    std::ofstream(config) << nginx_config(folder, api, worker);
    return std::vector<std::string>{"nginx", "-p", folder, "-c", config};
  }
  std::vector<std::string> command;
  if (peer == "sglang-router") {
    command = {"python3", "-m", "sglang_router.launch_router"};
  } else if (peer == "vllm-router") {
    command = {"vllm-router"};
  } else {
    return fail(ErrorCode::InvalidArgument, fmt::format("no peer is named '{}'", peer));
  }
  command.insert(command.end(),
                 {"--worker-urls",
                  "http://" + worker.to_string(),
                  "--policy",
                  "round_robin",
                  "--host",
                  api.host,
                  "--port",
                  std::to_string(api.port)});
  return command;
}

// By a run of its own that does nothing.
bool is_installed(const std::string& peer, const std::string& log) {
  const std::vector<std::string> command =
      peer == "sglang-router" ? std::vector<std::string>{"python3", "-c", "import sglang_router"}
      : peer == "nginx"       ? std::vector<std::string>{"nginx", "-v"}
                              : std::vector<std::string>{peer, "--help"};
  const auto output = cli::run_to_end({.command = command, .output_file = log, .append = false});
  return output && output->exit.clean();
}

}  // namespace

Result<std::unique_ptr<PeerRig>> PeerRig::start(const RigOptions& options,
                                                const std::string& peer,
                                                const std::string& answer) {
  const std::string log = fmt::format("{}/{}.log", options.run_folder, peer);
  if (!is_installed(peer, log)) {
    return fail(ErrorCode::NotFound, fmt::format("{} is not installed", peer));
  }
  std::unique_ptr<PeerRig> rig(new PeerRig());
  BATON_ASSIGN(rig->worker_, BareRig::start(options, answer, options.other_core));
  BATON_ASSIGN(rig->api_, HeldAddress::hold(kHost));
  BATON_ASSIGN(std::vector<std::string> command,
               peer_command(peer, options.run_folder, rig->api(), rig->worker_->api()));
  BATON_ASSIGN(rig->peer_, start_on(options.gateway_core, std::move(command), log));
  BATON_TRY(wait_for(rig->api(), "/health", *rig->peer_, log));
  return rig;
}

}  // namespace baton::bench
