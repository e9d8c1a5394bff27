// A whole gateway: control listener, membership, queue and tracker on one control thread; the HTTP
// server on its I/O threads; a small pool for long prompts.
//
// Owner: main, or a test. Thread: start, drain, stop from one thread of the owner. Failure: `start`
// gives an Error for what the configuration asks and the machine cannot (busy port, bad address).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/config/cluster_config.h"
#include "common/obs/log.h"
#include "gateway/http/http_server.h"
#include "gateway/requests/request_tracker.h"

namespace baton::gateway {

// Beside the configuration: what tests set.
struct GatewayTuning {
  std::uint32_t pool_threads = 2;
  int send_buffer_bytes = 0;
  std::chrono::milliseconds tick{500};
  std::chrono::milliseconds restart_wait{15'000};
};

class Gateway {
 public:
  static Result<std::unique_ptr<Gateway>> start(const ClusterConfig& config,
                                                const Logger& log,
                                                GatewayTuning tuning = {});
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;
  ~Gateway();

  std::string http_address() const;
  std::string control_address() const;
  std::string admin_address() const;
  const HttpServerStats& http_stats() const;
  // Readiness off, no new work; returns when all replies are finished or `limit` has passed.
  void drain(std::chrono::milliseconds limit);
  // Takes from a configuration that was read again what may change while it runs: objectives,
  // limits and tiers of the queue, pools, keys; reads keys file and certificate again. The log says
  // what has changed and which other keys want a restart; what is wrong changes nothing. Edges of
  // histograms stay as they were at the start.
  void reload(const ClusterConfig& config);
  // Keys file and certificate alone.
  void reload_files();
  // Ends what is left. Idempotent.
  void stop();

 private:
  struct Parts;
  explicit Gateway(std::unique_ptr<Parts> parts);
  void reload_certificate();
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::gateway
