#include "bench/gateway/gateway_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/gateway/chat_bodies.h"
#include "bench/gateway/scripted_nodes.h"
#include "common/base/cores.h"
#include "common/base/file_limit.h"
#include "common/base/random.h"

namespace baton::bench {
namespace {

constexpr std::size_t kSmallBody = 2 * 1024;
constexpr std::size_t kLargeBody = 128 * 1024;
constexpr std::uint64_t kSeed = 7;
constexpr double kWarmSeconds = 1;
constexpr double kPassPatience = 10;  // for what is out when a pass ends
constexpr unsigned kFloodStreams = 32;
constexpr unsigned kFloodTokens = 1000;
constexpr std::size_t kStreamBody = 512;
constexpr double kOpenRate = 2000;  // streams a second
constexpr double kProbeRate = 100;  // GET /livez a second
constexpr double kProbeSeconds = 3;

std::string livez(const HostPort& server) {
  return fmt::format("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", server.to_string());
}

struct Pass {
  std::vector<double> first_us;
  std::vector<double> late_us;
  std::size_t failed = 0;
};

Pass pass_of(const std::vector<LoadAnswer>& answers, unsigned tokens) {
  Pass pass;
  for (const LoadAnswer& answer : answers) {
    if (answer.status != 200 || !answer.is_whole || answer.marks != tokens) {
      ++pass.failed;
      continue;
    }
    pass.first_us.push_back(answer.first_us());
    pass.late_us.push_back(answer.late_us());
  }
  return pass;
}

// Sends `seconds` of requests after a warm-up; `rest` runs between the two.
template <class Between>
Result<Pass> run_pass(const HostPort& server,
                      std::size_t body_bytes,
                      double rate,
                      double seconds,
                      std::uint64_t first_number,
                      const Between& between) {
  LoadClient client(server, std::string(kAnswerMark));
  const RandomSource random = seeded_random(kSeed);
  std::uint64_t number = first_number;
  const auto make = [&](std::uint64_t) {
    return chat_post(server, chat_body(body_bytes, ++number, 1));
  };
  BATON_TRY(client.open_loop(rate, std::min(kWarmSeconds, seconds), kPassPatience, random, make));
  (void)client.take_answers();
  BATON_TRY(between());
  BATON_TRY(client.open_loop(rate, seconds, kPassPatience, random, make));
  client.give_up();
  return pass_of(client.take_answers(), 1);
}

// `rig`: one that answers without nodes.
template <class Rig>
Result<ServerPass> measure_server(const Rig& rig,
                                  std::size_t body_bytes,
                                  double rate,
                                  double seconds) {
  ProcessUse before;
  BATON_ASSIGN(const Pass pass, run_pass(rig.api(), body_bytes, rate, seconds, 0, [&]() -> Status {
                 before = rig.use();
                 return {};
               }));
  ServerPass out;
  out.requests = pass.first_us.size() + pass.failed;
  out.failed = pass.failed;
  out.first = spread_of(pass.first_us);
  out.cpu_us = (rig.use().cpu_us - before.cpu_us) /
               static_cast<double>(std::max<std::size_t>(1, out.requests));
  return out;
}

// The whole answer to one request, as the gateway writes it.
Result<std::string> canned_answer(const HostPort& server) {
  LoadClient client(server, std::string(kAnswerMark));
  client.keep_bytes(true);
  BATON_TRY(client.send(chat_post(server, chat_body(kStreamBody, 1, 1)), 0, now_ns()));
  BATON_TRY(client.receive(now_ns() + 5'000'000'000, true));
  const auto answers = client.take_answers();
  if (answers.empty() || answers[0].status != 200 || answers[0].marks != 1) {
    return fail(ErrorCode::Unavailable,
                fmt::format("the gateway does not serve: {}", client.last_bytes().substr(0, 500)));
  }
  return client.last_bytes();
}

// How long a request that needs nothing but the I/O thread takes while others are worked on.
Result<Spread> probe_io(const GatewayBenchOptions& options,
                        const HostPort& server,
                        std::size_t body_bytes,
                        double rate) {
  LoadClient client(server, "");
  const RandomSource random = seeded_random(kSeed);
  // One Poisson process, of which every `each`-th is a request and the others are probes.
  const auto each = static_cast<std::uint64_t>(std::max(2.0, kProbeRate / rate));
  BATON_TRY(client.open_loop(rate * static_cast<double>(each),
                             std::min(options.seconds, kProbeSeconds),
                             kPassPatience,
                             random,
                             [&](std::uint64_t tag) {
                               return tag % each == 0
                                          ? chat_post(server, chat_body(body_bytes, ~tag, 1))
                                          : livez(server);
                             }));
  std::vector<double> times;
  for (const LoadAnswer& answer : client.take_answers()) {
    if (answer.tag % each != 0 && answer.status == 200) {
      times.push_back(answer.first_us());
    }
  }
  return spread_of(std::move(times));
}

}  // namespace

Result<RequestRow> measure_requests(const GatewayBenchOptions& options,
                                    const std::string& name,
                                    std::size_t body_bytes,
                                    double rate,
                                    bool tokenizer_beside) {
  RequestRow row;
  row.name = name;
  row.body_bytes = body_bytes;
  row.rate = rate;
  row.tokenizer_beside = tokenizer_beside;
  std::string answer;
  {
    BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, NodePace{}));
    BATON_ASSIGN(answer, canned_answer(rig->api()));
    ProcessUse before;
    PromptCost cost;
    BATON_ASSIGN(const Pass pass,
                 run_pass(rig->api(), body_bytes, rate, options.seconds, 0, [&]() -> Status {
                   BATON_ASSIGN(cost, rig->prompt_cost());
                   before = rig->use();
                   return {};
                 }));
    const ProcessUse after = rig->use();
    BATON_ASSIGN(const PromptCost cost_after, rig->prompt_cost());
    row.requests = pass.first_us.size() + pass.failed;
    row.failed = pass.failed;
    const auto count = static_cast<double>(std::max<std::size_t>(1, row.requests));
    row.cost = cost_after - cost;
    row.cost = {
        row.cost.parse_us / count, row.cost.template_us / count, row.cost.tokenize_us / count};
    row.cpu_us = (after.cpu_us - before.cpu_us) / count;
    row.gateway = spread_of(pass.first_us);
    row.late_p99_us = spread_of(pass.late_us).p99;
    BATON_ASSIGN(row.probe, probe_io(options, rig->api(), body_bytes, rate));
  }
  BATON_ASSIGN(const auto bare, BareRig::start(options.rig, answer, options.rig.gateway_core));
  BATON_ASSIGN(const ServerPass pass, measure_server(*bare, body_bytes, rate, options.seconds));
  row.bare = pass.first;
  row.bare_cpu_us = pass.cpu_us;
  return row;
}

Result<std::vector<PeerRow>> measure_peers(const GatewayBenchOptions& options) {
  std::string answer;
  {
    BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, NodePace{}));
    BATON_ASSIGN(answer, canned_answer(rig->api()));
  }
  std::vector<PeerRow> rows;
  for (const char* name : {"nginx", "sglang-router", "vllm-router"}) {
    PeerRow row{.name = name};
    const auto rig = PeerRig::start(options.rig, name, answer);
    if (!rig) {
      row.missing = rig.error().message;
      rows.push_back(std::move(row));
      continue;
    }
    BATON_ASSIGN(row.small, measure_server(**rig, kSmallBody, options.small_rate, options.seconds));
    BATON_ASSIGN(row.large, measure_server(**rig, kLargeBody, options.large_rate, options.seconds));
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<FloodRow> measure_flood(const GatewayBenchOptions& options) {
  BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, NodePace{}));
  LoadClient client(rig->api(), std::string(kAnswerMark));
  std::uint64_t number = 0;
  const auto make = [&](std::uint64_t) {
    return chat_post(rig->api(), chat_body(kStreamBody, ++number, kFloodTokens));
  };
  BATON_TRY(client.closed_loop(kFloodStreams, 0.2, kPassPatience, make));
  (void)client.take_answers();
  const std::uint64_t marks = client.marks();
  const ProcessUse before = rig->use();
  BATON_TRY(client.closed_loop(kFloodStreams, options.seconds / 2, kPassPatience, make));
  const ProcessUse after = rig->use();
  FloodRow row;
  row.tokens = client.marks() - marks;
  client.give_up();
  row.failed = pass_of(client.take_answers(), kFloodTokens).failed;
  row.cpu_us_per_token =
      (after.cpu_us - before.cpu_us) / static_cast<double>(std::max<std::size_t>(1, row.tokens));
  return row;
}

Result<OpenRow> measure_open_streams(const GatewayBenchOptions& options, unsigned streams) {
  BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, NodePace{.token_gap_ms = 1000}));
  const double opening = streams / kOpenRate;
  const auto tokens = static_cast<unsigned>(opening * 1.5) + options.stream_seconds + 4;
  LoadClient client(rig->api(), std::string(kAnswerMark));
  // What a gateway has once and keeps is not a stream's: some requests come first.
  BATON_TRY(client.closed_loop(4, 0.3, kPassPatience, [&](std::uint64_t tag) {
    return chat_post(rig->api(), chat_body(kStreamBody, (1ULL << 32U) + tag, 1));
  }));
  (void)client.take_answers();
  const double rss_before = rig->use().rss_kib;
  for (std::uint64_t tag = 0; tag < streams; ++tag) {
    const Nanoseconds due = now_ns() + static_cast<Nanoseconds>(1e9 / kOpenRate);
    BATON_TRY(client.send(chat_post(rig->api(), chat_body(kStreamBody, tag, tokens)), tag, due));
    BATON_TRY(client.receive(due));
  }
  BATON_TRY(client.receive(now_ns() + 2'000'000'000));
  const ProcessUse before = rig->use();
  const Nanoseconds from = now_ns();
  BATON_TRY(client.receive(from + Nanoseconds{options.stream_seconds} * 1'000'000'000));
  const ProcessUse after = rig->use();
  const double seconds = static_cast<double>(now_ns() - from) * 1e-9;
  OpenRow row;
  row.streams = streams;
  row.memory_kib = (after.rss_kib - rss_before) / streams;
  row.core_share = (after.cpu_us - before.cpu_us) * 1e-6 / seconds;
  BATON_TRY(client.receive(now_ns() + Nanoseconds{tokens} * 1'000'000'000, true));
  client.give_up();
  std::vector<double> first;
  for (const LoadAnswer& answer : client.take_answers()) {
    row.refused += answer.status == 200 ? 0 : 1;
    row.missed_tokens +=
        answer.status == 200 ? tokens - std::min<std::uint64_t>(tokens, answer.marks) : 0;
    first.push_back(answer.first_us());
  }
  row.first = spread_of(std::move(first));
  return row;
}

Result<GatewayBenchReport> run_gateway_bench(const GatewayBenchOptions& options) {
  raise_file_limit();
  BATON_TRY(stay_on({options.rig.other_core}));
  const auto tell = [&](std::string_view line) {
    if (options.progress) {
      options.progress(line);
    }
  };
  GatewayBenchReport report;
  if (options.soak_seconds > 0) {
    tell(fmt::format("unique long prompts for {} s", options.soak_seconds));
    BATON_ASSIGN(report.soak, measure_soak(options));
  }
  if (options.overload_seconds > 0) {
    tell(fmt::format("overload for {} s", options.overload_seconds));
    BATON_ASSIGN(report.overload, measure_overload(options));
  }
  if (options.soak_seconds > 0 || options.overload_seconds > 0) {
    return report;
  }
  const auto is_wanted = [&](std::string_view pass) {
    return options.only.empty() || std::ranges::find(options.only, pass) != options.only.end();
  };
  if (is_wanted("small")) {
    tell(fmt::format("small bodies, {} a second", options.small_rate));
    BATON_ASSIGN(report.small,
                 measure_requests(options, "small", kSmallBody, options.small_rate, false));
  }
  if (is_wanted("large")) {
    tell(fmt::format("large bodies, {} a second", options.large_rate));
    BATON_ASSIGN(report.large,
                 measure_requests(options, "large", kLargeBody, options.large_rate, true));
  }
  if (options.peers) {
    tell("other projects' proxies, with the same requests");
    BATON_ASSIGN(report.peers, measure_peers(options));
  }
  if (is_wanted("flood")) {
    tell("streams without a pace");
    BATON_ASSIGN(report.flood, measure_flood(options));
  }
  for (const unsigned streams : is_wanted("open") ? options.streams : std::vector<unsigned>()) {
    tell(fmt::format("{} streams at a token a second", streams));
    BATON_ASSIGN(const OpenRow row, measure_open_streams(options, streams));
    report.open.push_back(row);
  }
  return report;
}

}  // namespace baton::bench
