#include "cli/rules/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "common/config/gateways.h"

namespace baton::cli {
namespace {

using Millis = std::chrono::milliseconds;

// Events with a time, and the time that most of them must keep.
struct Indicator {
  std::string slo;       // ttft, itl, prefill, …
  std::string phase;     // who is called
  std::string tier;      // empty: all
  std::string metric;    // a histogram
  std::string selector;  // of the events that may miss it
  std::string all;       // of the events that the share is of
  Millis target;
  std::string what;  // "prompts computed"
};

struct Burn {
  double factor;  // times the rate that uses up the budget just at the window's end
  int long_minutes;
  int short_minutes;
  const char* severity;
};
constexpr std::array<Burn, 4> kBurns{{{14.4, 60, 5, "page"},
                                      {6, 360, 30, "page"},
                                      {3, 1440, 120, "ticket"},
                                      {1, 4320, 360, "ticket"}}};

std::vector<Indicator> indicators(const ClusterConfig& config) {
  const SloSection& slo = config.slo;
  std::vector<Indicator> all;
  const std::string phase_metric = "baton_request_phase_seconds";
  if (!config.prefill.pool.empty()) {
    all.push_back({"prefill",
                   "prefill",
                   "",
                   phase_metric,
                   R"(phase="prefill")",
                   R"(phase="prefill")",
                   slo.prefill,
                   "prompts took longer on their prefill node"});
    all.push_back({"prefill_queue",
                   "prefill",
                   "",
                   phase_metric,
                   R"(phase="queue",waiting_on="prefill")",
                   R"(phase="queue")",
                   slo.queue,
                   "requests waited longer for a prefill node"});
    all.push_back({"transfer",
                   "transfer",
                   "",
                   phase_metric,
                   R"(phase="transfer")",
                   R"(phase="transfer")",
                   slo.transfer,
                   "KV transfers ended later after prefill"});
  }
  all.push_back({"decode_queue",
                 "decode",
                 "",
                 phase_metric,
                 R"(phase="queue",waiting_on="decode")",
                 R"(phase="queue")",
                 slo.queue,
                 "requests waited longer for a decode node"});
  for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
    const std::string name(kTierNames[tier]);
    const std::string selector = fmt::format(R"(tier="{}")", name);
    all.push_back({"itl",
                   "decode",
                   name,
                   "baton_inter_token_latency_seconds",
                   selector,
                   selector,
                   slo.tiers[tier].itl,
                   "tokens came later after the one before"});
    all.push_back({"ttft",
                   "gateway",
                   name,
                   "baton_time_to_first_token_seconds",
                   selector,
                   selector,
                   slo.tiers[tier].ttft,
                   "first tokens came later"});
  }
  return all;
}

// As the metrics print an edge.
std::string bucket_label(double edge) {
  return fmt::format("{:.16g}", edge);
}

class Writer {
 public:
  Writer(const ClusterConfig& config, const RuleOptions& options)
      : config_(config), options_(options), budget_(1 - config.slo.objective_permille / 1000.0) {}

  std::string write() {
    out_ = fmt::format(
        "# Made by `baton rules` from {}; make it anew when the objectives change.\n"
        "groups:\n",
        options_.source);
    out_ += "  - name: baton-slo\n    rules:\n";
    for (const Indicator& indicator : indicators(config_)) {
      record(indicator);
    }
    for (const Indicator& indicator : indicators(config_)) {
      alerts(indicator);
    }
    out_ += "  - name: baton-health\n    rules:\n";
    health();
    return std::move(out_);
  }

 private:
  std::string window(double minutes) const {
    const auto seconds = std::max(1L, std::lround(minutes * 60 / options_.speed_up));
    return seconds % 60 == 0 ? fmt::format("{}m", seconds / 60) : fmt::format("{}s", seconds);
  }

  static std::string labels(const Indicator& i) {
    return fmt::format(R"(slo="{}",tier="{}")", i.slo, i.tier);
  }

  // Names of recorded series carry the window as the book has it, whatever the speed-up.
  static std::string ratio(const Indicator& i, int minutes) {
    return fmt::format("baton:slo_error_ratio:rate{}m{{{}}}", minutes, labels(i));
  }
  static std::string events(const Indicator& i, int minutes) {
    return fmt::format("baton:slo_events:increase{}m{{{}}}", minutes, labels(i));
  }

  void rule(const std::string& record, const std::string& expression, const Indicator& i) {
    out_ += fmt::format(
        "      - record: {}\n        expr: {}\n        labels: {{slo: {}, phase: {}, tier: "
        "\"{}\"}}\n",
        record,
        expression,
        i.slo,
        i.phase,
        i.tier);
  }

  void record(const Indicator& i) {
    for (const int minutes : {5, 30, 60, 120, 360, 1440, 4320}) {
      const std::string range = window(minutes);
      const auto rate = [&](const char* series, const std::string& selector) {
        return fmt::format("sum(rate({}_{}{{{}}}[{}]))", i.metric, series, selector, range);
      };
      rule(fmt::format("baton:slo_error_ratio:rate{}m", minutes),
           fmt::format(
               "({} - {}) / ({} > 0)",
               rate("count", i.selector),
               rate("bucket",
                    fmt::format(
                        R"({},le="{}")", i.selector, bucket_label(i.target.count() / 1000.0))),
               rate("count", i.all)),
           i);
    }
    for (const Burn& burn : kBurns) {
      rule(
          fmt::format("baton:slo_events:increase{}m", burn.long_minutes),
          fmt::format(
              "sum(increase({}_count{{{}}}[{}]))", i.metric, i.selector, window(burn.long_minutes)),
          i);
    }
  }

  // One alert a severity: any of its burn rates, in both windows, with enough traffic to judge.
  void alerts(const Indicator& i) {
    for (const char* severity : {"page", "ticket"}) {
      std::string expression;
      for (const Burn& burn : kBurns) {
        if (std::string_view(severity) != burn.severity) {
          continue;
        }
        const std::string limit = fmt::format("{:.6g}", std::min(burn.factor * budget_, 0.999));
        expression += fmt::format(
            "{}({} > {} and {} > {} and {} >= {}{})",
            expression.empty() ? "" : " or ",
            ratio(i, burn.long_minutes),
            limit,
            ratio(i, burn.short_minutes),
            limit,
            events(i, burn.long_minutes),
            config_.slo.min_events,
            // Time to first token is the gateway's only when no other phase explains it.
            i.phase == "gateway"
                ? fmt::format(" unless on() max(baton:slo_error_ratio:rate{}m{{phase=~\"prefill|"
                              "transfer|decode\"}}) > {}",
                              burn.short_minutes,
                              limit)
                : "");
      }
      const std::string name = fmt::format(
          "Baton{}Slo{}", camel(i.slo), std::string_view(severity) == "page" ? "Burn" : "Drift");
      alert(name,
            expression,
            "",
            severity,
            i.phase,
            fmt::format("More {} than {} ms{} than the objective of {:g} % allows",
                        i.what,
                        i.target.count(),
                        i.tier.empty() ? "" : fmt::format(" in tier {}", i.tier),
                        config_.slo.objective_permille / 10.0),
            i.tier);
    }
  }

  void alert(const std::string& name,
             const std::string& expression,
             const std::string& hold,
             const std::string& severity,
             const std::string& phase,
             const std::string& summary,
             const std::string& tier = "") {
    out_ += fmt::format("      - alert: {}\n        expr: {}\n", name, expression);
    if (!hold.empty()) {
      out_ += fmt::format("        for: {}\n", hold);
    }
    out_ += fmt::format("        labels: {{severity: {}, phase: {}{}}}\n",
                        severity,
                        phase,
                        tier.empty() ? "" : ", tier: " + tier);
    std::string anchor = name;
    std::transform(anchor.begin(), anchor.end(), anchor.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    out_ += fmt::format(
        "        annotations:\n          summary: \"{}\"\n          runbook_url: \"{}/{}.md#{}\"\n",
        summary,
        options_.runbooks,
        phase,
        anchor);
  }

  void health() {
    if (!config_.prefill.pool.empty()) {
      alert("BatonNoPrefillNode",
            R"(max(baton_nodes{role="prefill",state="alive"}) == 0)",
            window(1),
            "page",
            "prefill",
            "No prefill node is ready; requests wait or are refused");
    }
    alert("BatonNoDecodeNode",
          R"(max(baton_nodes{role="decode",state="alive"}) == 0)",
          window(1),
          "page",
          "decode",
          "No decode node is ready; nothing is served");
    alert("BatonGatewayGone",
          "absent(baton_num_requests_waiting)",
          window(2),
          "page",
          "gateway",
          "No gateway is scraped");
    alert("BatonRefusals",
          R"(sum(rate(baton_requests_total{status="refused"}[)" + window(10) +
              R"(])) / sum(rate(baton_requests_total[)" + window(10) + "])) > 0.05",
          window(10),
          "ticket",
          "gateway",
          "More than 5 % of requests are refused: the pools are too small for the load");
    for (const char* role : {"prefill", "decode"}) {
      const std::string on = fmt::format(R"(role="{}")", role);
      alert(fmt::format("Baton{}MemoryFull", camel(role)),
            fmt::format(R"(sum by (node) (baton_kv_blocks{{{},state!="free",state!="cached"}}) )"
                        R"(/ sum by (node) (baton_kv_blocks_total{{{}}}) > 0.95)",
                        on,
                        on),
            window(15),
            "ticket",
            role,
            "Node {{ $labels.node }} has had nearly all KV blocks in use: add nodes or memory");
      alert(fmt::format("Baton{}BlocksLost", camel(role)),
            fmt::format("sum by (node) (baton_kv_blocks{{{}}}) != sum by (node) "
                        "(baton_kv_blocks_total{{{}}})",
                        on,
                        on),
            window(5),
            "ticket",
            role,
            "The blocks of node {{ $labels.node }} do not add up: restart it and report it");
      alert(fmt::format("Baton{}Quarantine", camel(role)),
            fmt::format(R"(sum by (node) (baton_kv_blocks{{{},state="quarantined"}}) > 0)", on),
            window(15),
            "ticket",
            role,
            "Node {{ $labels.node }} keeps blocks back, since a peer may still write them");
    }
    alert("BatonDamagedBlocks",
          "sum(increase(baton_digest_mismatches_total[" + window(10) + "])) > 0",
          "",
          "page",
          "transfer",
          "Blocks arrived other than they were sent: a link or a memory is broken");
    alert("BatonPairsOut",
          "max(baton_pairs_out) > 0",
          window(5),
          "ticket",
          "transfer",
          "Pairs of nodes are out of routing");
    alert("BatonNodesDie",
          R"(sum(increase(baton_failovers_total{reason=~"node_died|node_stalled"}[)" + window(30) +
              "])) > 3",
          "",
          "ticket",
          "gateway",
          "Requests keep moving because nodes die or hang");
  }

  static std::string camel(std::string_view name) {
    std::string out;
    bool upper = true;
    for (const char c : name) {
      if (c == '_') {
        upper = true;
      } else {
        out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
        upper = false;
      }
    }
    return out;
  }

  const ClusterConfig& config_;
  const RuleOptions& options_;
  const double budget_;
  std::string out_;
};

void target(std::string& out, std::string_view role, std::string_view node, std::string_view at) {
  out += fmt::format(
      "      - targets: [\"{}\"]\n        labels: {{role: {}, node: {}}}\n", at, role, node);
}

}  // namespace

std::string alert_rules(const ClusterConfig& config, const RuleOptions& options) {
  return Writer(config, options).write();
}

std::string scrape_config(const ClusterConfig& config, const RuleOptions& options) {
  std::string out = fmt::format(
      "# Made by `baton rules --scrape` from {}.\n"
      "scrape_configs:\n"
      "  - job_name: baton\n"
      "    scrape_interval: {}\n"
      "    honor_labels: true  # a gateway's baton_nodes have the role of the nodes\n"
      "    static_configs:\n",
      options.source,
      options.speed_up > 1 ? "1s" : "15s");
  for (const GatewayEntry& gateway : gateways_of(config)) {
    target(out, "gateway", gateway.name, admin_address(gateway));
  }
  for (const NodeEntry& node : config.prefill.pool) {
    target(out, "prefill", node.name, node.admin_listen);
  }
  for (const NodeEntry& node : config.decode.pool) {
    target(out, "decode", node.name, node.admin_listen);
  }
  return out;
}

std::string alertmanager_config() {
  std::string out =
      "# An example: each phase has its own people. Give the receivers what you use (Slack,\n"
      "# PagerDuty, e-mail) in place of the webhooks.\n"
      "route:\n"
      "  receiver: gateway\n"
      "  group_by: [alertname, phase]\n"
      "  routes:\n";
  constexpr std::array<std::string_view, 3> kPhases{"prefill", "transfer", "decode"};
  for (const std::string_view phase : kPhases) {
    out += fmt::format("    - matchers: [phase=\"{}\"]\n      receiver: {}\n", phase, phase);
  }
  out += "receivers:\n";
  for (const std::string_view phase : {"gateway", "prefill", "transfer", "decode"}) {
    out += fmt::format(
        "  - name: {}\n    webhook_configs:\n      - url: \"http://127.0.0.1:9999/{}\"\n",
        phase,
        phase);
  }
  return out;
}

}  // namespace baton::cli
