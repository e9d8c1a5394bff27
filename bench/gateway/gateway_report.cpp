// The gateway benchmark's report as text and as one JSON line.
#include <fmt/format.h>

#include <iterator>
#include <tuple>

#include "bench/gateway/gateway_bench.h"

namespace baton::bench {
namespace {

constexpr double kMiB = 1024.0;  // KiB

std::string spread_json(const Spread& spread) {
  return fmt::format("{{\"p50_us\":{:.1f},\"p99_us\":{:.1f},\"worst_us\":{:.1f}}}",
                     spread.p50,
                     spread.p99,
                     spread.max);
}

// Of all answers.
double share_of(const TierRow& tier, const OverloadRow& row) {
  return row.answered == 0 ? 0
                           : static_cast<double>(tier.answered) / static_cast<double>(row.answered);
}

std::string request_json(const RequestRow& row) {
  return fmt::format(
      "{{\"body_bytes\":{},\"rate\":{:.0f},\"requests\":{},\"failed\":{},\"added_p50_us\":{:.1f},"
      "\"added_p99_us\":{:.1f},\"cpu_us_per_request\":{:.1f},\"tokenizer_us\":{:.1f},"
      "\"parse_us\":{:.1f},\"template_us\":{:.1f},\"latency_beside_tokenizer\":{},\"ttft\":{},"
      "\"bare\":{},\"bare_cpu_us_per_request\":{:.1f},\"io_thread\":{},\"client_late_p99_us\":"
      "{:.1f}}}",
      row.body_bytes,
      row.rate,
      row.requests,
      row.failed,
      row.added_p50_us(),
      row.added_p99_us(),
      row.cpu_us_per_request(),
      row.cost.tokenize_us,
      row.cost.parse_us,
      row.cost.template_us,
      row.tokenizer_beside,
      spread_json(row.gateway),
      spread_json(row.bare),
      row.bare_cpu_us,
      spread_json(row.probe),
      row.late_p99_us);
}

double added(double first, const std::optional<RequestRow>& row, double Spread::*which) {
  return row ? first - row->bare.*which : 0;
}

std::string pass_json(const ServerPass& pass, const std::optional<RequestRow>& row) {
  return fmt::format(
      "{{\"requests\":{},\"failed\":{},\"added_p50_us\":{:.1f},\"added_p99_us\":{:.1f},"
      "\"cpu_us_per_request\":{:.1f},\"ttft\":{}}}",
      pass.requests,
      pass.failed,
      added(pass.first.p50, row, &Spread::p50),
      added(pass.first.p99, row, &Spread::p99),
      pass.cpu_us,
      spread_json(pass.first));
}

std::string peers_json(const GatewayBenchReport& report) {
  std::string out = "[";
  for (const PeerRow& row : report.peers) {
    out += fmt::format("{}{{\"name\":\"{}\",", out.size() > 1 ? "," : "", row.name);
    out += row.missing.empty() ? fmt::format("\"small\":{},\"large\":{}}}",
                                             pass_json(row.small, report.small),
                                             pass_json(row.large, report.large))
                               : std::string("\"missing\":true}");
  }
  return out + "]";
}

// "stream": the unpaced run's CPU, memory of the first run with open streams, and each such run.
std::string stream_json(const GatewayBenchReport& report) {
  std::string out = "{";
  if (report.flood) {
    out += fmt::format("\"cpu_us_per_token\":{:.2f},\"tokens\":{},\"failed\":{}",
                       report.flood->cpu_us_per_token,
                       report.flood->tokens,
                       report.flood->failed);
  }
  if (!report.open.empty()) {
    out += fmt::format("{}\"memory_kib_per_stream\":{:.1f},\"open\":[",
                       report.flood ? "," : "",
                       report.open[0].memory_kib);
    for (std::size_t i = 0; i < report.open.size(); ++i) {
      const OpenRow& row = report.open[i];
      out += fmt::format(
          "{}{{\"streams\":{},\"memory_kib_per_stream\":{:.1f},\"core_share\":{:.3f},"
          "\"missed_tokens\":{},\"refused\":{},\"ttft\":{}}}",
          i == 0 ? "" : ",",
          row.streams,
          row.memory_kib,
          row.core_share,
          row.missed_tokens,
          row.refused,
          spread_json(row.first));
    }
    out += ']';
  }
  return out + "}";
}

std::string soak_json(const SoakRow& row) {
  return fmt::format(
      "{{\"seconds\":{:.0f},\"requests\":{},\"failed\":{},\"rss_start_kib\":{:.0f},"
      "\"rss_end_kib\":{:.0f},\"slope_kib_per_min\":{:.1f}}}",
      row.seconds,
      row.requests,
      row.failed,
      row.start_kib,
      row.end_kib,
      row.slope_kib_per_min);
}

std::string tiers_json(const OverloadRow& row) {
  std::string out = "[";
  for (const TierRow& tier : row.tiers) {
    out += fmt::format(
        "{}{{\"tier\":\"{}\",\"answered\":{},\"share\":{:.3f},\"refused_429\":{},"
        "\"ttft\":{}}}",
        out.size() > 1 ? "," : "",
        tier.name,
        tier.answered,
        share_of(tier, row),
        tier.refused,
        spread_json(tier.first));
  }
  return out + "]";
}

std::string overload_json(const OverloadRow& row) {
  return fmt::format(
      "{{\"capacity\":{:.1f},\"offered\":{:.1f},\"goodput_share\":{:.3f},\"target_us\":{:.0f},"
      "\"unloaded_ttft\":{},\"accepted_ttft\":{},\"answered\":{},\"refused_429\":{},"
      "\"without_retry_after\":{},\"other\":{},\"refusal\":{},\"tiers\":{}}}",
      row.capacity,
      row.offered,
      row.goodput_share,
      row.target_us,
      spread_json(row.unloaded),
      spread_json(row.accepted),
      row.answered,
      row.refused,
      row.refused_without_hint,
      row.other,
      spread_json(row.refusal),
      tiers_json(row));
}

void add_request_text(std::string& out, const RequestRow& row) {
  fmt::format_to(
      std::back_inserter(out),
      "{}: {} bytes, {:.0f} requests a second, {} answered, {} failed\n"
      "  to first token       p50 {:>7.0f} us   p99 {:>7.0f} us   worst {:>7.0f} us\n"
      "  bare server          p50 {:>7.0f} us   p99 {:>7.0f} us   CPU {:.0f} us a request\n"
      "  added{:<15} p50 {:>7.0f} us   p99 {:>7.0f} us\n"
      "  CPU a request        {:.0f} us, and the tokenizer's {:.0f} us (parse {:.0f}, template "
      "{:.0f})\n"
      "  I/O thread, /livez   p50 {:>7.0f} us   p99 {:>7.0f} us   worst {:>7.0f} us\n",
      row.name,
      row.body_bytes,
      row.rate,
      row.requests - row.failed,
      row.failed,
      row.gateway.p50,
      row.gateway.p99,
      row.gateway.max,
      row.bare.p50,
      row.bare.p99,
      row.bare_cpu_us,
      row.tokenizer_beside ? ", no tokenizer" : "",
      row.added_p50_us(),
      row.added_p99_us(),
      row.cpu_us_per_request(),
      row.cost.tokenize_us,
      row.cost.parse_us,
      row.cost.template_us,
      row.probe.p50,
      row.probe.p99,
      row.probe.max);
}

}  // namespace

std::string to_json(const GatewayBenchReport& report) {
  std::string out = "{";
  const auto add = [&](const char* key, const std::string& value) {
    out += fmt::format("{}\"{}\":{}", out.size() > 1 ? "," : "", key, value);
  };
  if (report.small) {
    add("small", request_json(*report.small));
  }
  if (report.large) {
    add("large", request_json(*report.large));
  }
  if (!report.peers.empty()) {
    add("peers", peers_json(report));
  }
  if (report.flood || !report.open.empty()) {
    add("stream", stream_json(report));
  }
  if (report.soak) {
    add("soak", soak_json(*report.soak));
  }
  if (report.overload) {
    add("overload", overload_json(*report.overload));
  }
  return out + "}";
}

std::string to_text(const GatewayBenchReport& report) {
  std::string out;
  for (const auto* row : {&report.small, &report.large}) {
    if (*row) {
      add_request_text(out, **row);
    }
  }
  const auto to = std::back_inserter(out);
  for (const PeerRow& row : report.peers) {
    if (!row.missing.empty()) {
      fmt::format_to(to, "{}\n", row.missing);
      continue;
    }
    for (const auto& [name, pass, own] :
         {std::tuple("small", &row.small, &report.small), {"large", &row.large, &report.large}}) {
      fmt::format_to(to,
                     "{}, {}: added p50 {:.0f} us, p99 {:.0f} us; CPU {:.0f} us a request; {} of "
                     "{} failed\n",
                     row.name,
                     name,
                     added(pass->first.p50, *own, &Spread::p50),
                     added(pass->first.p99, *own, &Spread::p99),
                     pass->cpu_us,
                     pass->failed,
                     pass->requests);
    }
  }
  if (report.flood) {
    fmt::format_to(to,
                   "streams without a pace: {} tokens, {} failed, {:.2f} us CPU a token\n",
                   report.flood->tokens,
                   report.flood->failed,
                   report.flood->cpu_us_per_token);
  }
  for (const OpenRow& row : report.open) {
    fmt::format_to(to,
                   "{} streams at a token a second: {:.1f} KiB a stream, {:.1f} % of a core, {} "
                   "tokens missed, {} refused, first chunk p50 {:.0f} us, p99 {:.0f} us\n",
                   row.streams,
                   row.memory_kib,
                   row.core_share * 100,
                   row.missed_tokens,
                   row.refused,
                   row.first.p50,
                   row.first.p99);
  }
  if (report.soak) {
    const SoakRow& row = *report.soak;
    fmt::format_to(to,
                   "unique prompts of 100,000 characters for {:.0f} s: {} requests, {} failed, "
                   "memory {:.1f} MiB, at the end {:.1f} MiB, {:+.1f} KiB a minute\n",
                   row.seconds,
                   row.requests,
                   row.failed,
                   row.start_kib / kMiB,
                   row.end_kib / kMiB,
                   row.slope_kib_per_min);
  }
  if (report.overload) {
    const OverloadRow& row = *report.overload;
    fmt::format_to(
        to,
        "overload: {:.0f} requests a second, capacity {:.0f}: goodput {:.1f} % of it\n"
        "  first token          p50 {:.0f} ms, p99 {:.0f} ms (target {:.0f}; half loaded "
        "p50 {:.0f}, p99 {:.0f})\n"
        "  answered {}, refused by 429 {} (p99 {:.1f} ms, {} without Retry-After), "
        "other {}\n",
        row.offered,
        row.capacity,
        row.goodput_share * 100,
        row.accepted.p50 / 1e3,
        row.accepted.p99 / 1e3,
        row.target_us / 1e3,
        row.unloaded.p50 / 1e3,
        row.unloaded.p99 / 1e3,
        row.answered,
        row.refused,
        row.refusal.p99 / 1e3,
        row.refused_without_hint,
        row.other);
    for (const TierRow& tier : row.tiers) {
      fmt::format_to(to,
                     "  {:<20} {:.1f} % of the answers, first token p50 {:.0f} ms, p99 {:.0f} ms, "
                     "refused {}\n",
                     tier.name,
                     share_of(tier, row) * 100,
                     tier.first.p50 / 1e3,
                     tier.first.p99 / 1e3,
                     tier.refused);
    }
  }
  return out;
}

}  // namespace baton::bench
