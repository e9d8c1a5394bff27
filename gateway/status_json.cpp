#include "gateway/status_json.h"

#include <fmt/format.h>

#include <iterator>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

std::string_view state_of(const Node& node) {
  if (node.is_draining()) {
    return "draining";
  }
  return node.health == PeerHealth::Alive ? "alive" : "suspect";
}

void append_node(std::string& out, const Node& node, const Routing& routing) {
  const wire::NodeLoad& load = node.load;
  out += "{\"name\":";
  append_json_string(out, node.name);
  fmt::format_to(std::back_inserter(out),
                 ",\"role\":\"{}\",\"state\":\"{}\",\"incarnation\":\"{:016x}\",\"address\":",
                 node.role == NodeRole::Decode ? "decode" : "prefill",
                 state_of(node),
                 node.incarnation.value);
  append_json_string(out, node.control_address);
  out += ",\"model\":";
  append_json_string(out, node.model.id());
  fmt::format_to(
      std::back_inserter(out),
      ",\"blocks_total\":{},\"blocks_free\":{},\"blocks_granted\":{},\"blocks_in_use\":{},"
      "\"blocks_quarantined\":{},"
      "\"blocks_cached\":{},\"blocks_announced\":{},\"running\":{},\"max_batch\":{},\"queued_"
      "tokens\":{},"
      "\"credit_limit\":{},\"credits_used\":{},\"sequences_given\":{},"
      "\"local_prefill_max_tokens\":{},\"prefill_tokens_per_s\":{:.1f},\"decode_step_ms\":{:.3f},"
      "\"engine_steps\":{},\"reactor_ticks\":{},\"rss_bytes\":{}}}",
      load.blocks_total(),
      load.blocks_free(),
      load.blocks_granted(),
      load.blocks_in_use(),
      load.blocks_quarantined(),
      load.blocks_cached(),
      routing.announced(node.handle),
      load.running(),
      load.max_batch(),
      load.queued_tokens(),
      load.credit_limit(),
      node.credits_used,
      node.sequences_given,
      load.local_prefill_max_tokens(),
      load.prefill_tokens_per_s(),
      load.decode_step_ms(),
      load.engine_steps(),
      load.reactor_ticks(),
      load.rss_bytes());
}

void append_breakers(std::string& out, const std::vector<RouteHealth::Breaker>& breakers) {
  bool first = true;
  for (const RouteHealth::Breaker& breaker : breakers) {
    out += first ? "{\"node\":" : ",{\"node\":";
    append_json_string(out, breaker.part.node.name);
    if (breaker.part.is_pair()) {
      out += ",\"decode\":";
      append_json_string(out, breaker.part.peer.name);
    }
    fmt::format_to(std::back_inserter(out),
                   ",\"state\":\"{}\",\"faults\":{},\"open_for_ms\":{}}}",
                   to_string(breaker.state),
                   breaker.faults,
                   std::chrono::ceil<std::chrono::milliseconds>(breaker.left).count());
    first = false;
  }
}

}  // namespace

std::string status_json(const NodeName& gateway,
                        bool is_ready,
                        const Membership& membership,
                        const RouteHealth& health,
                        const RequestTracker& tracker,
                        const std::string& pools,
                        TimePoint now) {
  std::string out = "{\"gateway\":";
  append_json_string(out, gateway);
  fmt::format_to(std::back_inserter(out),
                 ",\"ready\":{},\"queued\":{},\"queue_limit\":{},\"running\":{},\"nodes\":[",
                 is_ready,
                 tracker.queued(),
                 tracker.queue_limit(),
                 tracker.active() - tracker.queued());
  bool first = true;
  for (const Node* node : membership.nodes()) {
    out += first ? "" : ",";
    append_node(out, *node, tracker.routing());
    first = false;
  }
  out += "],\"models\":[";
  first = true;
  for (const auto& [id, model] : membership.models()) {
    out += first ? "" : ",";
    out += "{\"id\":";
    append_json_string(out, id);
    fmt::format_to(std::back_inserter(out),
                   ",\"nodes\":{},\"context_length\":{},\"vocab_size\":{},"
                   "\"numerics_hash\":\"{:016x}\",\"layout_hash\":\"{:016x}\"}}",
                   model.nodes,
                   model.identity.context_length(),
                   model.identity.vocab_size(),
                   model.identity.numerics_hash(),
                   model.identity.layout_hash());
    first = false;
  }
  const MembershipStats& stats = membership.stats();
  fmt::format_to(
      std::back_inserter(out),
      "],\"membership\":{{\"registered\":{},\"refused\":{},\"lost\":{},\"replaced\":{}}},"
      "\"pairs_out\":[",
      stats.registered,
      stats.refused,
      stats.lost,
      stats.replaced);
  first = true;
  for (const RouteHealth::Pair& pair : health.barred()) {
    out += first ? "{\"prefill\":" : ",{\"prefill\":";
    append_json_string(out, pair.prefill.name);
    out += ",\"decode\":";
    append_json_string(out, pair.decode.name);
    out += "}";
    first = false;
  }
  out += "],\"breakers\":[";
  append_breakers(out, health.breakers(now));
  out += "],\"pools\":" + pools + "}";
  return out;
}

}  // namespace baton::gateway
