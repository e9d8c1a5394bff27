// The schema's part for the gateway: listeners and limits, routing, names of models, TLS, keys,
// tiers.
#include "common/config/schema.h"

namespace baton {
namespace {

using namespace text_rules;
using Form = TextRule::Form;

const TextRule kOrigin{Form::Origin, true, {}};
const TextRule kSha256{Form::Sha256, true, {}};

const TextRule kPolicy{Form::Choice, true, {"cost", "prefix", "least_load", "random"}};

TextRule tier_rule() {
  return TextRule{Form::Choice, true, {kTierNames.begin(), kTierNames.end()}};
}

void visit_limits(GatewaySection& s, ConfigVisitor& v) {
  v.number("queue_limit",
           s.queue_limit,
           0,
           1'000'000,
           "Requests of a tier that may wait for a pair of nodes; one more gets status 429.");
  v.millis("queue_timeout_ms", s.queue_timeout, 1, 3'600'000, "Longest wait in that queue.");
  v.millis(
      "request_timeout_ms", s.request_timeout, 1, 86'400'000, "Longest time of a whole request.");
  v.number("max_node_losses",
           s.max_node_losses,
           1,
           1000,
           "Nodes that may die under one request before it ends with an error.");
  v.number("max_connections",
           s.max_connections,
           1,
           1'000'000,
           "Connections of clients at once; one more is closed when it comes.");
  v.number("max_body_mb", s.max_body_mb, 1, 1024, "Largest request body in MiB.");
  v.number("max_header_kb", s.max_header_kb, 1, 1024, "Largest request header in KiB.");
  v.millis("header_timeout_ms",
           s.header_timeout,
           10,
           3'600'000,
           "Longest time from a request's first byte to the end of its header.");
  v.millis("body_timeout_ms",
           s.body_timeout,
           10,
           3'600'000,
           "Time for a request's body; each 16 KiB that arrive give a second more.");
  v.millis(
      "idle_timeout_ms",
      s.idle_timeout,
      10,
      86'400'000,
      "Silence between two requests after which a connection is closed. Keep it above the idle "
      "time of a proxy in front.");
  v.millis("drain_timeout_ms",
           s.drain_timeout,
           0,
           86'400'000,
           "After SIGTERM: longest wait for the requests in work.");
  v.number("keepalive_ms",
           s.keepalive_ms,
           100,
           3'600'000,
           "Silence in a stream after which a comment line keeps the connection alive.");
  v.number("client_buffer_kb",
           s.client_buffer_kb,
           16,
           1U << 20U,
           "Unsent KiB that a client may let pile up before its request is cancelled.");
  v.number("store_responses_mb",
           s.store_responses_mb,
           0,
           1U << 20U,
           "Memory in MiB for prompts and answers that clients of /v1/responses ask to keep; the "
           "oldest go first. 0: nothing is kept.");
}

void visit_tls(TlsSection& s, ConfigVisitor& v) {
  v.begin_section("tls", "HTTPS on gateway.listen. SIGHUP reads both files again.");
  v.text("certificate",
         s.certificate,
         kAny,
         "PEM file: the certificate, then those that lead to its root. Empty: plain HTTP.");
  v.text("key", s.key, kAny, "PEM file with the certificate's private key.");
  v.millis("handshake_timeout_ms",
           s.handshake_timeout,
           10,
           3'600'000,
           "Longest time from connecting to the end of the handshake.");
  v.number("max_handshakes",
           s.max_handshakes,
           1,
           100'000,
           "Handshakes in work at once; a connection above that is closed.");
  v.end_section();
}

void visit_key(ApiKeyEntry& s, ConfigVisitor& v) {
  v.text("name", s.name, kName, "Name of the key in metrics, unique.");
  v.text("sha256",
         s.sha256,
         kSha256,
         "SHA-256 of the key, 64 hexadecimal digits; `baton key new` prints key and hash.");
  v.flag("admin", s.admin, "May read /baton/status and /baton/requests, and drain nodes.");
  v.number("requests_per_minute",
           s.requests_per_minute,
           0,
           1'000'000'000,
           "Requests a minute. 0: no limit.");
  v.number("tokens_per_minute",
           s.tokens_per_minute,
           0,
           4'000'000'000,
           "Tokens of prompts and answers a minute; at entry max_tokens counts, at the end what "
           "came. 0: no limit.");
  v.number("parallel", s.parallel, 0, 1'000'000, "Requests in work at once. 0: no limit.");
  v.texts("tiers",
          s.tiers,
          tier_rule(),
          "Tiers it may ask for; the first is what `auto` means. Empty: all, and default.");
  v.texts("models", s.models, kAny, "Models it may use. Empty: all.");
}

void visit_keys(std::vector<ApiKeyEntry>& keys, ConfigVisitor& v) {
  v.entries(
      "keys",
      "list of keys",
      walk_of(keys, [&v](ApiKeyEntry& key) { visit_key(key, v); }),
      "Keys that clients show as `Authorization: Bearer KEY`. With none here and no keys_file "
      "everybody may ask for everything.");
}

void visit_breaker(BreakerSection& s, ConfigVisitor& v) {
  v.begin_section(
      "breaker",
      "When a node that fails, or a pair of nodes between which transfers fail, gets no "
      "work for a while.");
  v.number("faults", s.faults, 1, 1000, "Faults in a row after which it gets none.");
  v.millis("first_pause_ms",
           s.first_pause,
           1,
           3'600'000,
           "For how long, before one request tries it. Each try that fails doubles it.");
  v.millis("longest_pause_ms", s.longest_pause, 1, 86'400'000, "It doubles up to this.");
  v.end_section();
}

void visit_routing(RoutingSection& s, ConfigVisitor& v) {
  v.begin_section("routing", "Which nodes a request goes to.");
  v.text(
      "policy",
      s.policy,
      kPolicy,
      "cost: the fewest seconds, of queue, computing, transfer and slower steps. For comparison: "
      "prefix, a score of cached share and load; least_load, without caches; random.");
  v.number("itl_tokens",
           s.itl_tokens,
           0,
           4096,
           "cost: tokens of an answer for which a slower step is counted. Trades time to the first "
           "token for pace.");
  v.millis("expect_ms",
           s.expect,
           0,
           600'000,
           "How long blocks count as held that were just computed and are not announced yet.");
  visit_breaker(s.breaker, v);
  v.end_section();
}

void visit_model_name(ModelName& s, ConfigVisitor& v) {
  v.text("id", s.id, kRequired, "Name that clients use.");
  v.entries(
      "revisions",
      "list of revisions",
      walk_of(s.revisions,
              [&v](ModelRevision& revision) {
                v.text("model", revision.model, kRequired, "model.id of its nodes.");
                v.number("weight",
                         revision.weight,
                         0,
                         1'000'000,
                         "Its share of the requests, beside the others' weights. 0: none.");
              }),
      "What serves it. A session stays on its revision; where that has no pair of nodes, the next "
      "takes over.");
}

void visit_tracing(TracingSection& s, ConfigVisitor& v) {
  v.begin_section("tracing",
                  "One trace a request for a collector of OpenTelemetry: times, nodes and sizes, "
                  "never text.");
  v.text("endpoint",
         s.endpoint,
         kAny,
         "Where spans go by OTLP over HTTP, as http://collector:4318/v1/traces. Empty: nowhere.");
  v.number("sample_percent",
           s.sample_percent,
           0,
           100,
           "Requests that are traced, of those that bring no `traceparent`; one that brings it "
           "says so itself.");
  v.number("queue_spans",
           s.queue_spans,
           1,
           1'000'000,
           "Spans that may wait for the collector; more are dropped and counted.");
  v.end_section();
}

void visit_tier(std::string_view name, std::string_view help, TierSection& s, ConfigVisitor& v) {
  v.begin_section(name, help);
  v.number("share_percent",
           s.share_percent,
           0,
           100,
           "Share of the nodes' work that is its own while other tiers wait, too. What no share "
           "claims goes to the highest tier that waits.");
  v.millis("ttft_target_ms",
           s.ttft_target,
           0,
           3'600'000,
           "Deadline of the first token, from when the request was received. 0: none.");
  v.flag("refuse_early",
         s.refuse_early,
         "Answer 429 at once when the first token cannot be expected by its deadline, and from the "
         "queue when it can no longer come by then.");
  v.millis("starve_after_ms",
           s.starve_after,
           1,
           3'600'000,
           "When none of its requests was begun for this long, the oldest is next.");
  v.number("queue_limit",
           s.queue_limit,
           0,
           1'000'000,
           "Its requests that may wait. 0: gateway.queue_limit.");
  v.millis("queue_timeout_ms",
           s.queue_timeout,
           0,
           3'600'000,
           "Longest wait of its requests. 0: gateway.queue_timeout_ms.");
  v.end_section();
}

void visit_entry(GatewayEntry& s, ConfigVisitor& v) {
  v.text("name",
         s.name,
         kName,
         "Name of the gateway, unique in the cluster; `--name` chooses by it. It stands in status, "
         "log, traces, and labels of `baton rules --scrape`.");
  v.text("listen", s.listen, kAddress, "In place of gateway.listen.");
  v.text("control_listen", s.control_listen, kAddress, "In place of gateway.control_listen.");
  v.text("admin_listen", s.admin_listen, kAddress, "In place of gateway.admin_listen.");
}

}  // namespace

void visit_gateway(GatewaySection& s, ConfigVisitor& v) {
  v.begin_section("gateway", "The process that clients talk to.");
  v.text("listen", s.listen, kAddress, "Where the OpenAI API is served.");
  v.text("control_listen",
         s.control_listen,
         kAddress,
         "Where nodes connect; cluster.gateways names the same port.");
  v.text("admin_listen",
         s.admin_listen,
         kAddress,
         "Where /metrics, /livez and /readyz are served. Port 0: any free one.");
  v.entries("pool",
            "list of gateways",
            walk_of(
                s.pool,
                [&v](GatewayEntry& entry) { visit_entry(entry, v); },
                GatewayEntry{"", s.listen, s.control_listen, s.admin_listen}),
            "The gateways where there are several, in the order of cluster.gateways. None: one, "
            "with the addresses above.");
  v.number("io_threads", s.io_threads, 1, 256, "Threads that serve connections.");
  visit_limits(s, v);
  v.texts("cors_origins",
          s.cors_origins,
          kOrigin,
          "Web pages that may read replies, such as https://chat.example; \"*\": all.");
  visit_routing(s.routing, v);
  v.entries(
      "models",
      "list of names",
      walk_of(s.models, [&v](ModelName& name) { visit_model_name(name, v); }),
      "Names beside those that nodes bring: revisions of a model side by side. A name that nodes "
      "have, too, hides theirs.");
  visit_tracing(s.tracing, v);
  visit_tls(s.tls, v);
  v.text("keys_file",
         s.keys_file,
         kAny,
         "YAML file with a list `keys`, entries as in gateway.keys. Read again when it changes and "
         "on SIGHUP; a file with a fault is told in the log and changes nothing.");
  visit_keys(s.keys, v);
  v.begin_section("tiers", "What `service_tier` asks for.");
  visit_tier("priority", "Served first.", s.tiers[0], v);
  visit_tier("default", "What a request gets that names no tier.", s.tiers[1], v);
  visit_tier("flex", "Served last: work that may wait.", s.tiers[2], v);
  v.end_section();
  v.end_section();
}

void visit_key_file(std::vector<ApiKeyEntry>& keys, ConfigVisitor& visitor) {
  visit_keys(keys, visitor);
}

}  // namespace baton
