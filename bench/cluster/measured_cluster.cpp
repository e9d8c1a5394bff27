#include "bench/cluster/measured_cluster.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace baton::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kReadyLimit{120};
constexpr std::chrono::seconds kStopGrace{10};

std::string configuration(const MeasuredClusterOptions& options, const std::string& model) {
  const std::string text = fmt::format(
      "cluster:\n  name: measured\n  token: measured\n  gateways: [\"127.0.0.1:0\"]\n"
      "model:\n  id: {}\n  path: {}\n"
      "kv:\n  arena_mb: {}\n"
      "gateway:\n  listen: 127.0.0.1:0\n  control_listen: 127.0.0.1:0\n",
      model,
      fs::absolute(options.model).string(),
      options.arena_mb);
  if (options.colocated) {
    return text + "decode:\n  local_prefill_max_tokens: 1048576\n  pool:\n    - name: both-0\n";
  }
  return text + fmt::format(
                    "prefill:\n  engine:\n    cores: \"{}\"\n  pool:\n    - name: prefill-0\n"
                    "decode:\n  engine:\n    cores: \"{}\"\n  pool:\n    - name: decode-0\n",
                    options.prefill_cores,
                    options.decode_cores);
}

}  // namespace

Result<std::unique_ptr<MeasuredCluster>> MeasuredCluster::start(
    const MeasuredClusterOptions& options) {
  std::unique_ptr<MeasuredCluster> started(new MeasuredCluster());
  started->model_ = fs::path(options.model).stem().string();
  std::error_code ignored;
  fs::create_directories(options.run_folder, ignored);
  cli::LocalClusterOptions up;
  up.config_file = options.run_folder + "/cluster.yaml";
  std::ofstream(up.config_file) << configuration(options, started->model_);
  up.bin_folder = options.bin_folder;
  up.run_folder = options.run_folder;
  up.free_ports = true;
  up.overrides = options.set;
  BATON_ASSIGN(started->cluster_, cli::LocalCluster::start(up));
  BATON_TRY(started->cluster_->wait_ready(kReadyLimit, [](const std::string&) { return false; }));
  return started;
}

MeasuredCluster::~MeasuredCluster() {
  if (cluster_ != nullptr) {
    cluster_->stop(kStopGrace);
  }
}

HostPort MeasuredCluster::address() const {
  constexpr std::string_view kScheme = "http://";
  return *HostPort::parse(cluster_->base_url().substr(kScheme.size()));
}

std::string MeasuredCluster::obituary() {
  std::string text;
  for (const auto* dead : cluster_->newly_dead()) {
    text += fmt::format("\n{}", cli::LocalCluster::obituary(*dead));
  }
  return text;
}

}  // namespace baton::bench
