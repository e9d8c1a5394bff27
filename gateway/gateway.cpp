// Composition root: constructs, wires, starts, stops. No policy.
#include "gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cores.h"
#include "common/base/random.h"
#include "common/config/changed_keys.h"
#include "common/exec/asio_executor.h"
#include "common/obs/admin_server.h"
#include "common/obs/metrics.h"
#include "common/obs/span_exporter.h"
#include "common/rpc/control_tls.h"
#include "common/rpc/tcp_network.h"
#include "gateway/access/key_source.h"
#include "gateway/api/api_handler.h"
#include "gateway/api/delivery.h"
#include "gateway/cluster/artifact_fetcher.h"
#include "gateway/cluster/membership.h"
#include "gateway/cluster/model_publisher.h"
#include "gateway/cluster/rollout.h"
#include "gateway/dashboard/data.h"
#include "gateway/dashboard/ended_requests.h"
#include "gateway/dashboard/page.h"
#include "gateway/pools/pool_controller.h"
#include "gateway/requests/request_spans.h"
#include "gateway/status_json.h"
#include "gateway/work_pool.h"

namespace baton::gateway {
namespace {

std::int64_t unix_millis() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Those that may change while the gateway runs.
TrackerOptions limits_of(const ClusterConfig& config) {
  TrackerOptions options;
  options.queue_limit = config.gateway.queue_limit;
  options.queue_timeout = config.gateway.queue_timeout;
  options.tiers = config.gateway.tiers;
  options.request_timeout = config.gateway.request_timeout;
  return options;
}

bool may_change_while_running(std::string_view key) {
  for (const std::string_view part : {"slo.",
                                      "pools.",
                                      "gateway.keys",
                                      "gateway.tiers.",
                                      "gateway.queue_limit",
                                      "gateway.queue_timeout_ms",
                                      "gateway.request_timeout_ms"}) {
    if (key.starts_with(part)) {
      return true;
    }
  }
  return false;
}

TrackerOptions tracker_options(const ClusterConfig& config,
                               const GatewayTuning& tuning,
                               std::function<void(const GenerateRequest&)> on_submitted,
                               std::function<void(EndedRequest)> on_ended) {
  TrackerOptions options = limits_of(config);
  options.on_submitted = std::move(on_submitted);
  options.on_ended = std::move(on_ended);
  options.restart_wait = tuning.restart_wait;
  options.failover.max_node_losses = config.gateway.max_node_losses;
  options.routing.policy = route_policy_named(config.gateway.routing.policy);
  options.routing.itl_tokens = config.gateway.routing.itl_tokens;
  options.routing.linger = config.gateway.routing.expect;
  options.routing.pulls = config.transfer.pull;
  options.routing.mixer = system_random()();
  return options;
}

BreakerLimits breaker_limits(const ClusterConfig& config) {
  const BreakerSection& breaker = config.gateway.routing.breaker;
  return {breaker.faults, breaker.first_pause, breaker.longest_pause};
}

// The targets are those of the tier that requests have which name none.
PoolControllerOptions pool_options(const ClusterConfig& config) {
  const TierSlo& slo = config.slo.tiers[static_cast<std::size_t>(Tier::Default)];
  const auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  };
  return {.pools = config.pools, .ttft_s = seconds(slo.ttft), .itl_s = seconds(slo.itl)};
}

HttpServerOptions http_options(const ClusterConfig& config,
                               const GatewayTuning& tuning,
                               boost::asio::io_context& first_context) {
  HttpServerOptions options;
  options.listen = config.gateway.listen;
  options.io_threads = config.gateway.io_threads;
  options.first_context = &first_context;
  options.max_body_bytes = std::size_t{config.gateway.max_body_mb} << 20;
  options.max_header_bytes = std::size_t{config.gateway.max_header_kb} << 10;
  options.max_unsent_bytes = std::size_t{config.gateway.client_buffer_kb} << 10;
  options.send_buffer_bytes = tuning.send_buffer_bytes;
  options.max_connections = config.gateway.max_connections;
  options.header_timeout = config.gateway.header_timeout;
  options.body_timeout = config.gateway.body_timeout;
  options.idle_timeout = config.gateway.idle_timeout;
  options.cors_origins = config.gateway.cors_origins;
  options.handshake_timeout = config.gateway.tls.handshake_timeout;
  options.max_handshakes = config.gateway.tls.max_handshakes;
  options.tick = tuning.tick;
  return options;
}

}  // namespace

// Declared in the order of construction; what is later may use what is earlier.
struct Gateway::Parts {
  Parts(const ClusterConfig& started_with,
        const Logger& logger,
        const GatewayTuning& tuning,
        std::shared_ptr<ControlTls> tls)
      : log(logger),
        started(started_with),
        config(started_with),
        probe(metrics, config.slo),
        cost(metrics),
        pool(tuning.pool_threads),
        control("control"),
        network(control.executor(),
                log,
                RpcOptions{.tls = std::move(tls), .refused = RefusedProbe(metrics)}),
        keys([this] { return control.executor().now(); }, &metrics),
        key_source(control.executor(), keys, log, config.gateway.keys, config.gateway.keys_file),
        rollout(config.gateway.models),
        models(rollout),
        delivery(control.executor()),
        membership(
            control.executor(),
            network,
            log,
            config.cluster,
            config.gateway.name,
            Incarnation{random()},
            MembershipHandlers{
                [this](Node& node) { on_node_up(node); },
                [this](Node& node) { on_node_changed(node); },
                [this](Node& node, const wire::TokenFrame& frame) {
                  tracker.on_tokens(node, frame);
                },
                [this](Node& node, const Error& why) { on_node_down(node, why); },
                [this](Node& node, const wire::KvEvents& events) {
                  tracker.on_kv_events(node, events);
                },
                [this](Node& node, wire::Granted& granted) { tracker.on_granted(node, granted); }}),
        health(log, &metrics, breaker_limits(config), [this] { publisher.publish(); }),
        tracker(control.executor(),
                membership,
                health,
                log,
                probe,
                tracker_options(
                    config,
                    tuning,
                    [this](const GenerateRequest& request) {
                      pools.on_request(request.model, request.prompt.size());
                    },
                    [this](EndedRequest request) {
                      pools.on_ended(request.model,
                                     request.prompt_tokens,
                                     request.figures.cached_tokens,
                                     request.output_tokens);
                      request.ended_unix_ms = unix_millis();
                      request.gateway = config.gateway.name;
                      if (spans != nullptr && request.trace.is_exported) {
                        spans->add(spans_of(request));
                      }
                      ended.add(std::move(request));
                    })),
        pools(control.executor(),
              membership,
              log,
              metrics,
              pool_options(config),
              [this](const std::string& model) { return tracker.waiting(model); }),
        fetcher(
            control.executor(), membership, pool, log, [this] { publisher.publish(); }, cost),
        publisher(metrics, membership, health, fetcher, config.model, models),
        responses(std::size_t{config.gateway.store_responses_mb} << 20),
        api(ApiHandlerDeps{control.executor(),
                           tracker,
                           models,
                           delivery,
                           pool,
                           keys,
                           random,
                           [this] { return status(); },
                           [this](std::string_view id) { return requests(id); },
                           [this](const NodeName& node, std::chrono::milliseconds limit) {
                             return membership.drain(node, limit);
                           },
                           config.model.id,
                           std::chrono::milliseconds(config.gateway.keepalive_ms),
                           responses,
                           cost,
                           {.has_collector = !config.gateway.tracing.endpoint.empty(),
                            .sample_percent = config.gateway.tracing.sample_percent}}) {
    export_dropped_lines(metrics);
  }

  void on_node_up(Node& node) {
    fetcher.need(node);
    publisher.publish();
    tracker.on_node_changed(node);
  }
  void on_node_changed(Node& node) {
    publisher.publish();
    tracker.on_node_changed(node);
  }
  void on_node_down(Node& node, const Error& why) {
    fetcher.on_node_down(node);
    publisher.publish();
    tracker.on_node_down(node, why);
  }
  std::string status() {
    const TimePoint now = control.executor().now();
    return status_json(
        config.gateway.name, api.is_ready(), membership, health, tracker, pools.to_json(), now);
  }

  void tell_changes(const ClusterConfig& now) const {
    std::vector<std::string> taken;
    std::vector<std::string> kept;
    for (std::string& key : changed_keys(config, now)) {
      if (may_change_while_running(key)) {
        taken.push_back(std::move(key));
      }
    }
    for (std::string& key : changed_keys(started, now)) {
      if (!may_change_while_running(key)) {
        kept.push_back(std::move(key));
      }
    }
    log.info("read the configuration again; changed: {}",
             taken.empty() ? "nothing" : fmt::format("{}", fmt::join(taken, ", ")));
    if (!kept.empty()) {
      log.warn("not as it runs, and taken at a restart: {}", fmt::join(kept, ", "));
    }
    if (std::ranges::any_of(taken,
                            [](const std::string& key) { return key.starts_with("slo."); })) {
      log.warn(
          "targets of slo changed: histograms keep their edges and rules their thresholds until a "
          "restart and `baton rules`");
    }
  }
  // "" for one that is not known.
  std::string requests(std::string_view id) const {
    if (id.empty()) {
      return "{\"requests\":" + ended.to_json() + "}";
    }
    const auto number = parse_request_id(id);
    if (!number) {
      const EndedRequest* traced = ended.find_trace(id);
      return traced != nullptr ? to_json(*traced) : std::string();
    }
    if (auto running = tracker.describe(*number)) {
      running->ended_unix_ms = unix_millis();
      running->gateway = config.gateway.name;
      return to_json(*running);
    }
    const EndedRequest* kept = ended.find(*number);
    return kept != nullptr ? to_json(*kept) : std::string();
  }

  const Logger log;
  const ClusterConfig started;
  ClusterConfig config;  // as it was read last; on the control strand
  Metrics metrics;
  std::unique_ptr<SpanExporter> spans;  // null: no collector
  const Probe probe;
  const PromptCost cost;
  const RandomSource random = system_random();
  WorkPool pool;
  ControlThread control;
  TcpNetwork network;
  KeyRing keys;
  KeySource key_source;  // on the control strand
  const Rollout rollout;
  ModelDirectory models;
  Delivery delivery;
  Membership membership;
  RouteHealth health;
  EndedRequests ended;  // on the control strand
  RequestTracker tracker;
  PoolController pools;
  ArtifactFetcher fetcher;
  ModelPublisher publisher;
  ResponseStore responses;
  ApiHandler api;
  std::shared_ptr<TlsCertificates> certificates;  // null: plain HTTP
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<AdminServer> admin;
  bool stopped = false;
};

Gateway::Gateway(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gateway::~Gateway() {
  stop();
}

Result<std::unique_ptr<Gateway>> Gateway::start(const ClusterConfig& config,
                                                const Logger& log,
                                                GatewayTuning tuning) {
  const ControlTlsSection& named = config.cluster.tls;
  const ControlTlsFiles files{named.certificate, named.key, named.authority};
  BATON_ASSIGN(std::shared_ptr<ControlTls> control_tls, ControlTls::load(files, log));
  std::unique_ptr<Gateway> gateway(
      new Gateway(std::make_unique<Parts>(config, log, tuning, std::move(control_tls))));
  Parts& parts = *gateway->parts_;
  if (const TracingSection& tracing = config.gateway.tracing; !tracing.endpoint.empty()) {
    auto spans =
        SpanExporter::start({.endpoint = tracing.endpoint, .queue_limit = tracing.queue_spans},
                            parts.metrics,
                            parts.log);
    if (!spans) {
      return fail(spans.error().code,
                  fmt::format("gateway.tracing.endpoint: {}", spans.error().message));
    }
    parts.spans = std::move(*spans);
  }
  Status keys;
  Status listening;
  parts.control.run_and_wait([&] {
    prefer_short_turns();
    keys = parts.key_source.start();
    listening = parts.membership.listen(config.gateway.control_listen);
    parts.pools.start();
  });
  BATON_TRY(keys);
  if (!listening) {
    return fail(listening.error().code,
                fmt::format("gateway.control_listen: {}", listening.error().message));
  }
  const TlsSection& tls = config.gateway.tls;
  if (!tls.certificate.empty()) {
    BATON_ASSIGN(parts.certificates, TlsCertificates::load(tls.certificate, tls.key));
  }
  HttpServerOptions options = http_options(config, tuning, parts.control.executor().context());
  options.certificates = parts.certificates;
  options.check_head = [&parts](const HttpRequest& head) { return parts.api.check_head(head); };
  BATON_ASSIGN(
      parts.http,
      HttpServer::start(std::move(options), [&parts](std::shared_ptr<HttpExchange> exchange) {
        parts.api.handle(std::move(exchange));
      }));
  AdminHandlers admin;
  admin.metrics = [&parts] { return parts.metrics.to_text(); };
  admin.ready = [&parts] {
    return parts.api.is_ready() ? AdminHandlers::Answer{true, "ready"}
                                : AdminHandlers::Answer{false, "no pair of nodes is ready"};
  };
  admin.pages = {{"/", "text/html; charset=utf-8", [] { return std::string(dashboard_page()); }},
                 {"/dashboard/data", "application/json", [&parts] {
                    std::string text;
                    parts.control.run_and_wait([&] {
                      text = dashboard_json(parts.status(), parts.ended, parts.config.slo);
                    });
                    return text;
                  }}};
  auto serving = AdminServer::start(config.gateway.admin_listen, std::move(admin));
  if (!serving) {
    return fail(serving.error().code,
                fmt::format("gateway.admin_listen: {}", serving.error().message));
  }
  parts.admin = std::move(*serving);
  log.info("serving {}://{}/v1, nodes dial {}, metrics at http://{}/metrics",
           parts.certificates ? "https" : "http",
           gateway->http_address(),
           gateway->control_address(),
           gateway->admin_address());
  return gateway;
}

std::string Gateway::http_address() const {
  return parts_->http->address();
}
std::string Gateway::control_address() const {
  return parts_->membership.address();
}
std::string Gateway::admin_address() const {
  return parts_->admin->address();
}
const HttpServerStats& Gateway::http_stats() const {
  return parts_->http->stats();
}

void Gateway::drain(std::chrono::milliseconds limit) {
  parts_->api.drain();
  if (parts_->http) {
    parts_->http->drain(limit);
  }
}

void Gateway::reload(const ClusterConfig& config) {
  parts_->control.run_and_wait([&] {
    parts_->tell_changes(config);
    parts_->config = config;
    parts_->probe.show(config.slo);
    parts_->tracker.change_limits(limits_of(config));
    parts_->pools.change_options(pool_options(config));
    parts_->key_source.reload(config.gateway.keys);
  });
  reload_certificate();
}

void Gateway::reload_files() {
  parts_->control.run_and_wait([this] { parts_->key_source.reload(); });
  reload_certificate();
}

void Gateway::reload_certificate() {
  if (!parts_->certificates) {
    return;
  }
  if (const Status read = parts_->certificates->reload(); !read) {
    parts_->log.error("the certificate stays as it was: {}", read.error().message);
  } else {
    parts_->log.info("read the certificate again");
  }
}

void Gateway::stop() {
  if (std::exchange(parts_->stopped, true)) {
    return;
  }
  parts_->api.drain();
  if (parts_->admin) {
    parts_->admin->stop();
  }
  // Open requests get their error before the connections close.
  parts_->control.run_and_wait([this] {
    parts_->tracker.shut_down(
        to_api_error(Error{ErrorCode::Unavailable, "The server is shutting down."}));
  });
  // The delivery has posted them after one turn, and what it posts is queued after another.
  parts_->control.run_and_wait([] {});
  parts_->control.run_and_wait([] {});
  if (parts_->http) {
    parts_->http->stop();
  }
  parts_->pool.stop();
  parts_->control.run_and_wait([this] {
    parts_->pools.stop();
    parts_->membership.stop();
  });
  parts_->control.stop();
  if (parts_->spans) {
    parts_->spans->stop();
  }
}

}  // namespace baton::gateway
