#include "bench/cluster/interference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "bench/cluster/measured_cluster.h"
#include "bench/cluster/stream_client.h"
#include "bench/cluster/thread_times.h"
#include "bench/engine/peer.h"
#include "bench/serve/load.h"
#include "bench/spread.h"
#include "cli/cluster/free_port.h"
#include "cli/http/api_client.h"
#include "cli/process/child_process.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kReadyLimit{120};
constexpr Nanoseconds kFirstTokenLimit = 120 * kSecond;
constexpr std::size_t kSettled = 32;      // tokens of each stream before anything is counted
constexpr unsigned kStreamTokens = 7900;  // more than a pass needs; contexts end at 8192
constexpr unsigned kLongAnswer = 8;
constexpr unsigned kWarmPrompt = 512;
constexpr unsigned kWarmAnswer = 4;

// A server under test.
class Server {
 public:
  virtual ~Server() = default;
  virtual HostPort address() const = 0;
  virtual std::string model() const = 0;
  // Lines about what its threads have done since the last call.
  virtual std::vector<std::string> threads() { return {}; }
  // What ended without being asked; empty: nothing.
  virtual std::string obituary() = 0;
};

class BatonServer final : public Server {
 public:
  static Result<std::unique_ptr<Server>> start(const InterferenceOptions& options,
                                               bool is_colocated) {
    auto server = std::make_unique<BatonServer>();
    BATON_ASSIGN(server->cluster_,
                 MeasuredCluster::start(
                     {.model = options.model,
                      .bin_folder = options.bin_folder,
                      .run_folder = options.run_folder + (is_colocated ? "/colocated" : "/split"),
                      .colocated = is_colocated,
                      .prefill_cores = options.prefill_cores,
                      .decode_cores = options.decode_cores,
                      .set = options.set}));
    server->threads();
    return server;
  }
  HostPort address() const override { return cluster_->address(); }
  std::string model() const override { return cluster_->model(); }
  std::vector<std::string> threads() override {
    std::vector<std::string> lines;
    const Nanoseconds now = now_ns();
    for (const auto& member : cluster_->members()) {
      ThreadTimes times = thread_times(member.process.pid());
      const auto described = describe_threads(
          member.name, times_[member.name], times, static_cast<double>(now - looked_) * 1e-9);
      lines.insert(lines.end(), described.begin(), described.end());
      times_[member.name] = std::move(times);
    }
    looked_ = now;
    return lines;
  }
  std::string obituary() override { return cluster_->obituary(); }

 private:
  std::unique_ptr<MeasuredCluster> cluster_;
  std::map<std::string, ThreadTimes> times_;
  Nanoseconds looked_ = 0;
};

class LlamaServer final : public Server {
 public:
  static Result<std::unique_ptr<Server>> start(const InterferenceOptions& options,
                                               const std::string& folder,
                                               const std::vector<std::string>& settings) {
    auto server = std::make_unique<LlamaServer>();
    BATON_ASSIGN(server->address_, cli::HeldAddress::hold("127.0.0.1"));
    constexpr unsigned kSlots = 8;
    constexpr unsigned kContext = 8192;
    cli::ChildOptions child;
    child.command = {folder + "/llama-server",
                     "-m",
                     options.model,
                     "--host",
                     server->address().host,
                     "--port",
                     std::to_string(server->address().port),
                     "-t",
                     std::to_string(std::max(1U, std::thread::hardware_concurrency())),
                     "-np",
                     std::to_string(kSlots),
                     "-c",
                     std::to_string(kSlots * kContext)};
    child.command.insert(child.command.end(), settings.begin(), settings.end());
    std::error_code ignored;
    fs::create_directories(options.run_folder, ignored);
    server->log_ = options.run_folder + "/llama-server.log";
    child.output_file = server->log_;
    child.append = false;
    BATON_ASSIGN(ChildProcess process, ChildProcess::start(child));
    server->process_.emplace(std::move(process));
    cli::ApiClient client("http://" + server->address().to_string());
    const auto end = std::chrono::steady_clock::now() + kReadyLimit;
    while (true) {
      const auto status = client.probe("/health");
      if (status && *status == 200) {
        return server;
      }
      const std::string died = server->obituary();
      if (!died.empty() || std::chrono::steady_clock::now() > end) {
        return fail(ErrorCode::Unavailable, "llama-server does not come up" + died);
      }
      server->process_->wait(std::chrono::milliseconds(50));
    }
  }
  HostPort address() const override { return address_.address(); }
  std::string model() const override { return "model"; }
  std::string obituary() override {
    const auto exit = process_->poll_exit();
    return exit
               ? fmt::format("\nllama-server: {}\n{}", exit->to_string(), cli::last_lines(log_, 10))
               : std::string();
  }

 private:
  using ChildProcess = cli::ChildProcess;
  cli::HeldAddress address_;
  std::optional<ChildProcess> process_;
  std::string log_;
};

std::string body_of(const Server& server,
                    std::size_t prompt_tokens,
                    std::uint64_t seed,
                    unsigned answer) {
  return fmt::format(
      "{{\"model\": \"{}\", \"prompt\": {}, \"max_tokens\": {}, \"temperature\": 0, "
      "\"ignore_eos\": true, \"stream\": true, \"return_token_ids\": true}}",
      server.model(),
      random_ids(prompt_tokens, seed),
      answer);
}

struct Pass {
  std::vector<StreamAnswer> streams;
  std::vector<double> first_token_s;
};

// A server may put several tokens into one event; one that tells no ids puts one into each.
std::size_t tokens_in(const StreamEvent& event) {
  return std::max<std::size_t>(1, event.token_ids.size());
}

// What a stream said, a text a token.
std::vector<std::string> tokens_of(const StreamAnswer& answer) {
  std::vector<std::string> out;
  for (const StreamEvent& event : answer.events) {
    if (event.token_ids.empty()) {
      out.push_back(event.text);
    }
    for (const std::int64_t id : event.token_ids) {
      out.push_back(std::to_string(id));
    }
  }
  return out;
}

// Between events that begin after the settled tokens and before position `ends[i]` of stream i.
Gaps gaps_of(const std::vector<StreamAnswer>& streams, const std::vector<std::size_t>& ends) {
  std::vector<double> ms;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto& events = streams[i].events;
    std::size_t position = 0;
    for (std::size_t k = 0; k < events.size() && position < ends[i]; ++k) {
      if (position >= kSettled) {
        ms.push_back(static_cast<double>(events[k].at - events[k - 1].at) * 1e-6);
      }
      position += tokens_in(events[k]);
    }
  }
  const Spread spread = spread_of(std::move(ms));
  return {.count = spread.count, .p50 = spread.p50, .p99 = spread.p99, .worst = spread.max};
}

class Interference {
 public:
  explicit Interference(const InterferenceOptions& options) : options_(options) {}

  Result<std::vector<InterferenceRow>> run() {
    std::optional<Peer> peer;
    if (!options_.peer.empty()) {
      BATON_ASSIGN(auto found, Peer::find(options_.peer));
      peer.emplace(std::move(found));
    }
    const unsigned servers = 1 + (options_.colocated ? 1 : 0) + (peer ? 2 : 0);
    say(fmt::format("{} servers, two passes of {} s each: expected to take about {} minutes",
                    servers,
                    options_.seconds,
                    (servers * (2 * options_.seconds + 20) + 59) / 60));
    BATON_TRY(measure("baton, prefill and decode on a core each",
                      [&] { return BatonServer::start(options_, false); }));
    if (options_.colocated) {
      BATON_TRY(measure("baton, colocated", [&] { return BatonServer::start(options_, true); }));
    }
    if (peer) {
      BATON_TRY(measure("llama-server",
                        [&] { return LlamaServer::start(options_, peer->folder(), {}); }));
      BATON_TRY(measure("llama-server -b 512 -ub 512", [&] {
        return LlamaServer::start(options_, peer->folder(), {"-b", "512", "-ub", "512"});
      }));
    }
    return rows_;
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) {
      options_.progress(line);
    }
  }

  template <class Start>
  Status measure(const std::string& name, const Start& start) {
    say(name + ": starting");
    BATON_ASSIGN(const std::unique_ptr<Server> server, start());
    // What failed, and who died of it.
    const auto with_obituary = [&](const Error& error) {
      return fail(error.code, error.message + server->obituary());
    };
    if (const Status warm = warm_up(*server); !warm) {
      return with_obituary(warm.error());
    }
    server->threads();
    const auto undisturbed = pass(*server, false);
    if (!undisturbed) {
      return with_obituary(undisturbed.error());
    }
    tell_threads(*server);
    const auto disturbed = pass(*server, true);
    if (!disturbed) {
      return with_obituary(disturbed.error());
    }
    tell_threads(*server);
    InterferenceRow row;
    row.name = name;
    row.first_token_s = disturbed->first_token_s;
    row.same_tokens = true;
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < options_.streams; ++i) {
      const auto a = tokens_of(undisturbed->streams[i]);
      const auto b = tokens_of(disturbed->streams[i]);
      ends.push_back(std::min(a.size(), b.size()));
      row.compared_tokens += ends.back();
      const auto [at, other] =
          std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(ends.back()), b.begin());
      if (other != b.begin() + static_cast<std::ptrdiff_t>(ends.back())) {
        row.same_tokens = false;
        say(fmt::format(
            "  stream {} differs from token {} on: {} and {}", i, at - a.begin(), *at, *other));
      }
    }
    row.undisturbed = gaps_of(undisturbed->streams, ends);
    row.disturbed = gaps_of(disturbed->streams, ends);
    say(
        fmt::format("  {:.1f} / {:.1f} / {:.1f} ms undisturbed, {:.1f} / {:.1f} / {:.1f} disturbed "
                    "(p50, p99, worst), first tokens {:.1f} s",
                    row.undisturbed.p50,
                    row.undisturbed.p99,
                    row.undisturbed.worst,
                    row.disturbed.p50,
                    row.disturbed.p99,
                    row.disturbed.worst,
                    fmt::join(row.first_token_s, ", ")));
    rows_.push_back(std::move(row));
    return {};
  }

  void tell_threads(Server& server) const {
    if (options_.threads) {
      for (const std::string& line : server.threads()) {
        say("    " + line);
      }
    }
  }

  static Status warm_up(const Server& server) {
    StreamClient client(server.address());
    BATON_ASSIGN(const std::size_t number,
                 client.start(body_of(server, kWarmPrompt, 1000, kWarmAnswer)));
    BATON_TRY(client.wait_for(number, kWarmAnswer, kFirstTokenLimit));
    BATON_TRY(client.answer(number));
    return {};
  }

  Result<Pass> pass(const Server& server, bool is_disturbed) const {
    say(is_disturbed ? "  with long prompts" : "  undisturbed");
    StreamClient client(server.address());
    std::vector<std::size_t> streams;
    for (unsigned i = 0; i < options_.streams; ++i) {
      BATON_ASSIGN(const std::size_t number,
                   client.start(body_of(server, options_.stream_prompt, i, kStreamTokens)));
      streams.push_back(number);
    }
    for (const std::size_t number : streams) {
      BATON_TRY(client.wait_for(number, kSettled, kFirstTokenLimit));
    }
    std::vector<std::size_t> longs;
    const Nanoseconds begin = now_ns();
    const Nanoseconds end = begin + options_.seconds * kSecond;
    for (Nanoseconds at = begin; is_disturbed && at < end; at += options_.every_s * kSecond) {
      BATON_TRY(client.run_until(at));
      BATON_ASSIGN(
          const std::size_t number,
          client.start(body_of(server, options_.long_prompt, 100 + longs.size(), kLongAnswer)));
      longs.push_back(number);
    }
    BATON_TRY(client.run_until(end));
    Pass out;
    for (const std::size_t number : longs) {  // they may take longer than the pass
      BATON_TRY(client.wait_for(number, 1, kFirstTokenLimit));
      BATON_ASSIGN(const StreamAnswer answer, client.answer(number));
      if (answer.events.empty()) {
        return fail(ErrorCode::Unavailable, "a long prompt got no token");
      }
      out.first_token_s.push_back(static_cast<double>(answer.events[0].at - answer.sent) * 1e-9);
    }
    for (const std::size_t number : streams) {
      client.leave(number);
      BATON_ASSIGN(StreamAnswer answer, client.answer(number));
      out.streams.push_back(std::move(answer));
    }
    return out;
  }

  const InterferenceOptions& options_;
  std::vector<InterferenceRow> rows_;
};

// A row's line: `write` is given its cells, the same for every kind of table.
template <class Write>
std::string line(const InterferenceRow& row, const Write& write) {
  return write(row.name,
               row.undisturbed.p50,
               row.undisturbed.p99,
               row.undisturbed.worst,
               row.disturbed.p50,
               row.disturbed.p99,
               row.disturbed.worst,
               row.p99_ratio(),
               row.worst_ratio(),
               median(row.first_token_s),
               quantile(row.first_token_s, 1));
}

}  // namespace

Result<std::vector<InterferenceRow>> run_interference(const InterferenceOptions& options) {
  if (options.streams == 0 || options.seconds == 0 || options.every_s == 0 ||
      options.long_prompt == 0 || options.stream_prompt == 0) {
    return fail(ErrorCode::InvalidArgument, "streams, lengths and times must be at least 1");
  }
  return Interference(options).run();
}

std::string to_json(const std::vector<InterferenceRow>& rows) {
  const auto gaps = [](const Gaps& gaps) {
    return fmt::format(
        "{{\"count\": {}, \"p50_ms\": {:.3f}, \"p99_ms\": {:.3f}, \"worst_ms\": {:.3f}}}",
        gaps.count,
        gaps.p50,
        gaps.p99,
        gaps.worst);
  };
  std::string out = "{\"rows\": [";
  for (const InterferenceRow& row : rows) {
    out += fmt::format(
        "{}{{\"name\": \"{}\", \"undisturbed\": {}, \"disturbed\": {}, \"p99_ratio\": {:.3f}, "
        "\"worst_ratio\": {:.3f}, \"first_token_s\": [{:.3f}], \"same_tokens\": {}, "
        "\"compared_tokens\": {}}}",
        out.back() == '[' ? "" : ", ",
        row.name,
        gaps(row.undisturbed),
        gaps(row.disturbed),
        row.p99_ratio(),
        row.worst_ratio(),
        fmt::join(row.first_token_s, ", "),
        row.same_tokens,
        row.compared_tokens);
  }
  return out + "]}";
}

std::string to_text(const std::vector<InterferenceRow>& rows) {
  std::string out = fmt::format("{:<42} {:>24} {:>26} {:>6} {:>6} {:>13} {:>6}\n",
                                "gaps between tokens, ms",
                                "undisturbed p50/p99/worst",
                                "disturbed p50/p99/worst",
                                "p99 x",
                                "worst x",
                                "first token s",
                                "same");
  for (const InterferenceRow& row : rows) {
    out += line(row, [&](const auto&... cells) {
      return fmt::format(
          "{:<42} {:>9.2f} {:>7.2f} {:>8.1f} {:>9.2f} {:>7.2f} {:>8.1f} {:>6.2f} {:>6.1f} {:>6.2f} "
          "{:>6.2f} {:>6}\n",
          cells...,
          row.same_tokens ? "yes" : "NO");
    });
  }
  return out;
}

std::string to_markdown(const std::vector<InterferenceRow>& rows) {
  std::string out =
      "| server | undisturbed p50 / p99 / worst, ms | disturbed, ms | p99 ratio | worst over "
      "undisturbed p50 | first token, s: median, worst | same tokens |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const InterferenceRow& row : rows) {
    out += line(row, [&](const auto&... cells) {
      return fmt::format(
          "| {} | {:.2f} / {:.2f} / {:.1f} | {:.2f} / {:.2f} / {:.1f} | {:.2f} | {:.1f} | {:.2f}, "
          "{:.2f} | {} |\n",
          cells...,
          row.same_tokens ? fmt::format("{} of {}", row.compared_tokens, row.compared_tokens)
                          : "no");
    });
  }
  return out;
}

}  // namespace baton::bench
