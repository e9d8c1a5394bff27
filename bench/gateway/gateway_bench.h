// What the gateway adds to a request: latency over a bare Beast server, CPU a request and a
// streamed token, memory a stream, and what it does under overload and over time. The gateway is
// the real program on a processor of its own; nodes are scripted; load comes as an open loop from
// the other processor. Times are those of the client's kernel.
//
// Thread: the caller's. Failure: processes that do not come up give their Error; failed requests
// are figures, not Errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gateway/gateway_rig.h"
#include "bench/gateway/load_client.h"
#include "bench/spread.h"
#include "common/base/error.h"

namespace baton::bench {

struct GatewayBenchOptions {
  RigOptions rig;
  double seconds = 8;  // of each pass of requests
  double small_rate = 1000;
  double large_rate = 20;
  std::vector<unsigned> streams{2000, 8000};
  unsigned stream_seconds = 8;    // all streams open at a token a second each
  bool peers = false;             // other projects' proxies, too
  std::vector<std::string> only;  // of "small", "large", "flood", "open"; empty: all
  unsigned soak_seconds = 0;      // instead of everything else: unique long prompts
  unsigned overload_seconds = 0;  // instead of everything else
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

// Requests of one size, answered by one token. Every Spread is in microseconds.
struct RequestRow {
  std::string name;
  std::size_t body_bytes = 0;
  double rate = 0;
  std::size_t requests = 0;
  std::size_t failed = 0;
  Spread gateway;  // sent to first byte of the body
  Spread bare;
  double late_p99_us = 0;  // of the client itself: due to sent
  double cpu_us = 0;       // of the gateway, a request, the tokenizer's included
  double bare_cpu_us = 0;
  PromptCost cost;                // of one request
  bool tokenizer_beside = false;  // the limit on latency leaves the tokenizer's own time out
  Spread probe;                   // GET /livez meanwhile: what else the I/O thread had to wait for

  double beside() const { return tokenizer_beside ? cost.tokenize_us : 0; }
  double added_p50_us() const { return gateway.p50 - bare.p50 - beside(); }
  double added_p99_us() const { return gateway.p99 - bare.p99 - beside(); }
  double cpu_us_per_request() const { return cpu_us - cost.tokenize_us; }
};

// Requests to a server that knows no nodes.
struct ServerPass {
  std::size_t requests = 0;
  std::size_t failed = 0;
  Spread first;  // sent to first byte of the body
  double cpu_us = 0;
};

// Another project's proxy in the gateway's place, before a bare server. What it adds is over the
// bare server of the rows above.
struct PeerRow {
  std::string name;
  std::string missing;  // why it did not run; empty: it did
  ServerPass small;
  ServerPass large;
};

// Streams whose nodes send as fast as the gateway takes it.
struct FloodRow {
  std::size_t tokens = 0;
  std::size_t failed = 0;
  double cpu_us_per_token = 0;
};

// Many streams, a token a second each.
struct OpenRow {
  unsigned streams = 0;
  double memory_kib = 0;  // a stream
  double core_share = 0;  // of the gateway's processor, while all were open
  std::uint64_t missed_tokens = 0;
  std::size_t refused = 0;
  Spread first;  // time to the first chunk, on connections just made
};

struct SoakRow {
  double seconds = 0;
  std::size_t requests = 0;
  std::size_t failed = 0;
  double start_kib = 0;  // after the warm-up
  double end_kib = 0;
  double slope_kib_per_min = 0;  // least squares over what follows the warm-up
};

// Of one service tier under overload; all tiers ask for as much.
struct TierRow {
  std::string name;
  std::size_t answered = 0;
  std::size_t refused = 0;
  Spread first;  // time to first token
};

struct OverloadRow {
  double capacity = 0;       // answers a second, nodes busy and nothing in excess
  double offered = 0;        // requests a second
  Spread unloaded;           // time to first token at half of the capacity
  Spread accepted;           // under overload
  double target_us = 0;      // for the time to first token
  double goodput_share = 0;  // answers within the target, a share of the capacity
  std::size_t answered = 0;
  std::size_t refused = 0;               // 429
  std::size_t refused_without_hint = 0;  // 429 without Retry-After
  std::size_t other = 0;                 // neither answered nor 429
  Spread refusal;                        // time to a 429
  std::vector<TierRow> tiers;
};

struct GatewayBenchReport {
  std::optional<RequestRow> small;
  std::optional<RequestRow> large;
  std::vector<PeerRow> peers;
  std::optional<FloodRow> flood;
  std::vector<OpenRow> open;
  std::optional<SoakRow> soak;
  std::optional<OverloadRow> overload;
};

Result<GatewayBenchReport> run_gateway_bench(const GatewayBenchOptions& options);

std::string to_json(const GatewayBenchReport& report);
std::string to_text(const GatewayBenchReport& report);

// The parts, each with processes of its own.
Result<RequestRow> measure_requests(const GatewayBenchOptions& options,
                                    const std::string& name,
                                    std::size_t body_bytes,
                                    double rate,
                                    bool tokenizer_beside);
Result<std::vector<PeerRow>> measure_peers(const GatewayBenchOptions& options);
Result<FloodRow> measure_flood(const GatewayBenchOptions& options);
Result<OpenRow> measure_open_streams(const GatewayBenchOptions& options, unsigned streams);
Result<SoakRow> measure_soak(const GatewayBenchOptions& options);
Result<OverloadRow> measure_overload(const GatewayBenchOptions& options);

}  // namespace baton::bench
