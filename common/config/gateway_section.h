// The gateway's part of cluster.yaml: listeners, limits, routing, names of models, TLS, keys and
// tiers.
//
// Thread: const after loading. Failure: none here; the loader checks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton {

// In the order in which they are served.
enum class Tier : std::uint8_t { Priority, Default, Flex };
inline constexpr std::size_t kNumTiers = 3;
inline constexpr std::array<std::string_view, kNumTiers> kTierNames{"priority", "default", "flex"};

inline std::string_view to_string(Tier tier) {
  return kTierNames[static_cast<std::size_t>(tier)];
}

struct TierSection {
  std::uint32_t share_percent = 0;           // of the work given to nodes while others wait, too
  std::chrono::milliseconds ttft_target{0};  // deadline of the first token; 0: none
  bool refuse_early = true;                  // when the deadline cannot be met
  std::chrono::milliseconds starve_after{5'000};  // longest wait without any of its work begun
  std::uint32_t queue_limit = 0;                  // 0: gateway.queue_limit
  std::chrono::milliseconds queue_timeout{0};     // 0: gateway.queue_timeout_ms
};

// A bearer key: its hash and what its holder may do. Limits of 0 are none.
struct ApiKeyEntry {
  std::string name;    // for logs and metrics; unique
  std::string sha256;  // of the key, 64 hexadecimal digits
  bool admin = false;  // may read status and metrics and drain nodes
  std::uint32_t requests_per_minute = 0;
  std::uint32_t tokens_per_minute = 0;  // prompt and answer
  std::uint32_t parallel = 0;           // requests in work
  std::vector<std::string> tiers;       // empty: all
  std::vector<std::string> models;      // empty: all
};

// When nodes and pairs of them that fail get no work for a while.
struct BreakerSection {
  std::uint32_t faults = 3;  // in a row
  std::chrono::milliseconds first_pause{1'000};
  std::chrono::milliseconds longest_pause{60'000};
};

struct RoutingSection {
  std::string policy = "cost";   // cost, prefix, least_load, random
  std::uint32_t itl_tokens = 8;  // tokens of an answer for which a slower step is counted
  std::chrono::milliseconds expect{2'000};  // announcement of blocks just computed
  BreakerSection breaker;
};

// What nodes call a model, and its share of a name's requests.
struct ModelRevision {
  std::string model;
  std::uint32_t weight = 100;  // 0: none
};

// A name that clients use, served by revisions side by side.
struct ModelName {
  std::string id;
  std::vector<ModelRevision> revisions;
};

struct TlsSection {
  std::string certificate;  // PEM, with the chain; empty: plain HTTP
  std::string key;          // PEM
  std::chrono::milliseconds handshake_timeout{10'000};
  std::uint32_t max_handshakes = 256;  // in work at once
};

// Spans of requests for a collector, by OTLP over HTTP.
struct TracingSection {
  std::string endpoint;                // http://host:4318/v1/traces; empty: off
  std::uint32_t sample_percent = 100;  // of requests that bring no trace context
  std::uint32_t queue_spans = 4096;    // waiting for the collector; more are dropped
};

// One of several gateways.
struct GatewayEntry {
  std::string name;  // unique in the cluster
  std::string listen;
  std::string control_listen;
  std::string admin_listen;
};

struct GatewaySection {
  std::string name = "gateway";                   // no key: as_gateway (gateways.h) says it
  std::string listen = "127.0.0.1:8000";          // OpenAI API
  std::string control_listen = "127.0.0.1:7000";  // nodes dial here
  std::string admin_listen = "127.0.0.1:0";       // /metrics, /healthz
  std::vector<GatewayEntry> pool;  // several; the section's addresses with each one's own on top
  std::uint32_t io_threads = 1;
  std::uint32_t queue_limit = 256;  // requests of a tier waiting for a pair
  std::chrono::milliseconds queue_timeout{60'000};
  std::chrono::milliseconds request_timeout{600'000};
  std::uint32_t max_node_losses = 3;  // nodes that may die under one request
  std::uint32_t max_connections = 20'000;
  std::uint32_t max_body_mb = 32;
  std::uint32_t max_header_kb = 16;
  std::chrono::milliseconds header_timeout{10'000};  // first byte to whole head
  std::chrono::milliseconds body_timeout{30'000};    // of a body; each 16 KiB gives a second more
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests of a connection
  std::chrono::milliseconds drain_timeout{30'000};   // after SIGTERM
  std::uint32_t keepalive_ms = 15'000;               // silence before an SSE comment
  std::uint32_t store_responses_mb = 0;   // memory for kept answers of /v1/responses; 0: none kept
  std::uint32_t client_buffer_kb = 1024;  // unsent bytes a slow reader may have before it is cut
  std::vector<std::string> cors_origins{"*"};
  RoutingSection routing;
  std::vector<ModelName> models;  // beside those that nodes bring
  TracingSection tracing;
  TlsSection tls;
  std::string keys_file;          // YAML with `keys:`
  std::vector<ApiKeyEntry> keys;  // beside those of the file; none at all: open
  std::array<TierSection, kNumTiers> tiers{TierSection{.share_percent = 50},
                                           TierSection{.share_percent = 30},
                                           TierSection{.share_percent = 5}};

  bool has_keys() const { return !keys_file.empty() || !keys.empty(); }
};

// Reads a file of keys: a map with the one key `keys`, entries as in gateway.keys.
Result<std::vector<ApiKeyEntry>> load_api_keys(const std::string& path);

}  // namespace baton
