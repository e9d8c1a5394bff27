#include "bench/serve/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/cluster/measured_cluster.h"

namespace baton::bench {
namespace {

constexpr std::size_t kAlone = 3;          // requests alone
constexpr unsigned kPrefillWidth = 4;      // prompts out at a time: as many as credits
constexpr std::size_t kFewestPrompts = 6;  // of the prefill node's measurement
constexpr std::size_t kMostPrompts = 400;
constexpr unsigned kMostStreams = 32;         // decode.max_batch
constexpr std::uint32_t kDecodeTokens = 256;  // of each stream of the decode node's measurement
constexpr double kTtftSlack = 5;
constexpr double kItlSlack = 3;
constexpr std::size_t kNoise = 20;  // a part of 1/20 of the answers is chance

std::vector<unsigned> processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> found;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) {
        found.push_back(i);
      }
    }
  }
  return found;
}

Load same_requests(std::size_t count, std::uint32_t input, std::uint32_t output) {
  return Load(count, PlannedRequest{0, input, output});
}

std::uint32_t rounded(double tokens) {
  return static_cast<std::uint32_t>(std::max(1.0, std::round(tokens)));
}

// Times as they are, but `rate` requests a second on average.
Load at_rate(Load load, double rate) {
  const double planned = static_cast<double>(load.size()) / std::max(1e-9, load.back().at_s);
  for (PlannedRequest& request : load) {
    request.at_s *= planned / rate;
  }
  return load;
}

class Measurement {
 public:
  Measurement(const AdviseOptions& options, const AdviseWorkload& workload)
      : options_(options), workload_(workload) {}

  Result<Advice> run() {
    out_.workload = workload_.name;
    out_.lengths = mean_lengths(workload_.load);
    {
      say("one prefill and one decode node");
      BATON_ASSIGN(const auto pair, start(false));
      BATON_TRY(alone(*pair));
      BATON_TRY(prefill(*pair));
      BATON_TRY(decode(*pair));
      out_.rate = options_.load_share * std::min(out_.prompts_per_s, out_.answers_per_s);
      BATON_ASSIGN(out_.split, both_phases(*pair));
    }
    say("one colocated node");
    BATON_ASSIGN(const auto node, start(true));
    BATON_TRY(serve(*node, same_requests(1, input(), 8), 1, 3));
    BATON_ASSIGN(out_.colocated, both_phases(*node));
    out_.prefill_nodes = best_prefill_nodes(out_.prompts_per_s, out_.answers_per_s, options_.nodes);
    out_.decode_nodes = options_.nodes - out_.prefill_nodes;
    out_.winner = winner_of(out_.split, out_.colocated);
    return std::move(out_);
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) {
      options_.progress(fmt::format("{}: {}", workload_.name, line));
    }
  }
  std::uint32_t input() const { return rounded(out_.lengths.input); }
  std::uint32_t output() const { return rounded(out_.lengths.output); }

  Result<std::unique_ptr<MeasuredCluster>> start(bool is_colocated) const {
    std::string name = workload_.name;
    std::ranges::replace(name, '/', '-');
    return MeasuredCluster::start(
        {.model = options_.model,
         .bin_folder = options_.bin_folder,
         .run_folder = fmt::format(
             "{}/{}-{}", options_.run_folder, name, is_colocated ? "colocated" : "split"),
         .colocated = is_colocated,
         .prefill_cores = options_.prefill_cores,
         .decode_cores = options_.decode_cores,
         .set = options_.set});
  }

  Result<std::vector<Served>> serve(MeasuredCluster& cluster,
                                    Load load,
                                    unsigned width,
                                    std::uint64_t seed,
                                    bool same_prompt = false) const {
    ServeOptions options;
    options.target.server = cluster.address();
    options.target.model = cluster.model();
    options.load = std::move(load);
    options.width = width;
    options.seed = seed;
    options.same_prompt = same_prompt;
    auto served = serve_load(options);
    if (!served) {
      return fail(served.error().code, served.error().message + cluster.obituary());
    }
    for (const Served& one : *served) {
      if (!one.is_whole && width > 0) {  // an open loop may overload; the others may not
        return fail(ErrorCode::Unavailable,
                    fmt::format("a request failed: {}{}", one.error, cluster.obituary()));
      }
    }
    return served;
  }

  Status alone(MeasuredCluster& pair) {
    BATON_TRY(serve(pair, same_requests(1, input(), 8), 1, 5));  // pages, caches
    BATON_ASSIGN(const auto served, serve(pair, same_requests(kAlone, input(), output()), 1, 7));
    const ServeFigures figures = figures_of(served, {});
    out_.alone_ttft_s = figures.ttft_s.p50;
    out_.alone_tpot_s = figures.tpot_s.p50;
    out_.targets.ttft_s = options_.ttft_s.value_or(kTtftSlack * out_.alone_ttft_s);
    out_.targets.itl_s = options_.itl_s.value_or(kItlSlack * out_.alone_tpot_s);
    say(fmt::format("alone: TTFT {:.0f} ms, {:.1f} ms a token; targets {:.0f} and {:.1f} ms",
                    out_.alone_ttft_s * 1e3,
                    out_.alone_tpot_s * 1e3,
                    out_.targets.ttft_s * 1e3,
                    out_.targets.itl_s * 1e3));
    return {};
  }

  Status prefill(MeasuredCluster& pair) {
    const auto wanted =
        static_cast<std::size_t>(options_.capacity_seconds / std::max(1e-4, out_.alone_ttft_s));
    const std::size_t count = std::clamp(wanted, kFewestPrompts, kMostPrompts) + kPrefillWidth;
    BATON_ASSIGN(const auto served,
                 serve(pair, same_requests(count, input(), 1), kPrefillWidth, 11));
    // From the first end to the last: the node has had work all the time.
    std::vector<double> ends;
    for (const Served& one : served) {
      ends.push_back(one.due_s + one.e2e_s);
    }
    const auto [first, last] = std::ranges::minmax(ends);
    out_.prompts_per_s = static_cast<double>(ends.size() - 1) / std::max(1e-9, last - first);
    say(fmt::format("prefill node: {:.3f} prompts a second ({:.0f} tokens)",
                    out_.prompts_per_s,
                    out_.prompts_per_s * input()));
    return {};
  }

  // All streams have one prompt, so that it is computed once; their contexts are on average as long
  // as in the middle of an answer, so that decode reads as much for each as it would.
  Status decode(MeasuredCluster& pair) {
    const std::uint32_t middle = input() + output() / 2;
    const std::uint32_t context = middle > kDecodeTokens ? middle - kDecodeTokens / 2 : input();
    BATON_TRY(serve(pair, same_requests(1, context, 2), 1, 13, true));
    for (unsigned streams = 1; streams <= kMostStreams; streams *= 2) {
      BATON_ASSIGN(const auto served,
                   serve(pair, same_requests(streams, context, kDecodeTokens), streams, 13, true));
      std::vector<double> tpot;
      double tokens_per_s = 0;
      for (const Served& one : served) {
        tpot.push_back(one.tpot_s());
        tokens_per_s += 1 / std::max(1e-9, one.tpot_s());
      }
      DecodeStep step;
      step.streams = streams;
      step.tpot_s = spread_of(std::move(tpot)).p90;
      step.answers_per_s = tokens_per_s / output();
      step.keeps_target = step.tpot_s <= out_.targets.itl_s;
      say(fmt::format("decode node: {} streams, {:.1f} ms a token, {:.3f} answers a second",
                      streams,
                      step.tpot_s * 1e3,
                      step.answers_per_s));
      out_.decode_steps.push_back(step);
      if (step.keeps_target || streams == 1) {
        out_.answers_per_s = std::max(out_.answers_per_s, step.answers_per_s);
      }
      if (!step.keeps_target) {
        break;
      }
    }
    return {};
  }

  Result<ServeFigures> both_phases(MeasuredCluster& cluster) const {
    BATON_ASSIGN(const auto served, serve(cluster, at_rate(workload_.load, out_.rate), 0, 17));
    const ServeFigures figures = figures_of(served, out_.targets);
    say(fmt::format("{} requests, {:.3f} a second: {} within both targets",
                    figures.requests,
                    out_.rate,
                    figures.good));
    return figures;
  }

  const AdviseOptions& options_;
  const AdviseWorkload& workload_;
  Advice out_;
};

std::string mode_row(const char* name, const ServeFigures& f) {
  return fmt::format("  {:<30} {:>4} of {:<4} {:>7.3f} {:>10.0f} {:>8.0f} {:>9.1f} {:>9.1f}\n",
                     name,
                     f.good,
                     f.requests,
                     f.goodput(),
                     f.ttft_s.p50 * 1e3,
                     f.ttft_s.p90 * 1e3,
                     f.itl_s.p50 * 1e3,
                     f.itl_s.p99 * 1e3);
}

std::string verdict(const Advice& a) {
  const auto versus = [](const ServeFigures& one, const ServeFigures& other) {
    return fmt::format(
        "{} of {} requests within the targets against {} (TTFT p90 {:.0f} against "
        "{:.0f} ms, ITL p99 {:.1f} against {:.1f} ms)",
        one.good,
        one.requests,
        other.good,
        one.ttft_s.p90 * 1e3,
        other.ttft_s.p90 * 1e3,
        one.itl_s.p99 * 1e3,
        other.itl_s.p99 * 1e3);
  };
  switch (a.winner) {
    case Winner::Split:
      return "split the phases: " + versus(a.split, a.colocated);
    case Winner::Colocated:
      return "keep both phases on one node: " + versus(a.colocated, a.split);
    case Winner::Neither:
      break;
  }
  return "either mode, split or colocated: " + versus(a.split, a.colocated);
}

const char* name_of(Winner winner) {
  return winner == Winner::Split ? "split" : winner == Winner::Colocated ? "colocated" : "neither";
}

}  // namespace

Result<AdviseWorkload> parse_workload(const std::string& text, std::size_t requests) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto input = Lengths::parse(std::string_view(text).substr(0, slash));
  const auto output =
      Lengths::parse(std::string_view(text).substr(std::min(slash + 1, text.size())));
  if (!input || !output) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("'{}' is no workload: lengths of prompt and answer, as 4000/100", text));
  }
  return AdviseWorkload{text, poisson_load(1, requests, *input, *output, 1)};
}

unsigned best_prefill_nodes(double prompts_per_s, double answers_per_s, unsigned nodes) {
  const auto bears = [&](unsigned prefill) {
    return std::min(prefill * prompts_per_s, (nodes - prefill) * answers_per_s);
  };
  unsigned best = 1;
  for (unsigned prefill = 2; prefill < nodes; ++prefill) {
    best = bears(prefill) > bears(best) ? prefill : best;
  }
  return best;
}

Winner winner_of(const ServeFigures& split, const ServeFigures& colocated) {
  const std::size_t chance = std::max<std::size_t>(1, split.requests / kNoise);
  if (split.good > colocated.good + chance) {
    return Winner::Split;
  }
  return colocated.good > split.good + chance ? Winner::Colocated : Winner::Neither;
}

Result<std::vector<Advice>> advise(const AdviseOptions& given) {
  AdviseOptions options = given;
  const std::vector<unsigned> all = processors();
  if (options.prefill_cores.empty() && options.decode_cores.empty()) {
    if (all.size() < 2) {
      return fail(ErrorCode::InvalidArgument,
                  "the advice takes two processors, one for each phase; this process may use one");
    }
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    options.prefill_cores = fmt::format("{}", fmt::join(all.begin(), middle, ","));
    options.decode_cores = fmt::format("{}", fmt::join(middle, all.end(), ","));
  }
  std::vector<Advice> out;
  for (const AdviseWorkload& workload : options.workloads) {
    if (workload.load.empty()) {
      return fail(ErrorCode::InvalidArgument, workload.name + ": a workload without requests");
    }
    BATON_ASSIGN(Advice advice, Measurement(options, workload).run());
    out.push_back(std::move(advice));
  }
  return out;
}

std::string to_text(const Advice& a) {
  std::string out = fmt::format(
      "{}: {:.0f} tokens in, {:.0f} out on average\n"
      "  alone: TTFT {:.0f} ms, {:.1f} ms a token; targets: TTFT {:.0f} ms, {:.1f} ms a token\n"
      "  a prefill node bears {:.3f} prompts a second\n",
      a.workload,
      a.lengths.input,
      a.lengths.output,
      a.alone_ttft_s * 1e3,
      a.alone_tpot_s * 1e3,
      a.targets.ttft_s * 1e3,
      a.targets.itl_s * 1e3,
      a.prompts_per_s);
  for (const DecodeStep& step : a.decode_steps) {
    out += fmt::format(
        "  a decode node with {:>2} streams: {:>6.1f} ms a token, {:.3f} answers a "
        "second{}\n",
        step.streams,
        step.tpot_s * 1e3,
        step.answers_per_s,
        step.keeps_target ? "" : ", above the target");
  }
  out += fmt::format("  {:<30} {:>12} {:>7} {:>10} {:>8} {:>9} {:>9}\n",
                     fmt::format("at {:.3f} requests a second", a.rate),
                     "in time",
                     "a s",
                     "TTFT p50",
                     "p90 ms",
                     "ITL p50",
                     "p99 ms");
  out += mode_row("one prefill, one decode node", a.split);
  out += mode_row("one colocated node", a.colocated);
  out += fmt::format(
      "  advice: {:.2f} prefill nodes to a decode node; of {} nodes, {} prefill and {} decode\n"
      "  advice: on this machine, {}\n",
      a.ratio(),
      a.prefill_nodes + a.decode_nodes,
      a.prefill_nodes,
      a.decode_nodes,
      verdict(a));
  return out;
}

std::string to_json(const std::vector<Advice>& all) {
  std::string out = "{\"workloads\": [";
  for (const Advice& a : all) {
    std::vector<std::string> steps;
    for (const DecodeStep& step : a.decode_steps) {
      steps.push_back(fmt::format(
          R"({{"streams": {}, "tpot_ms": {:.3f}, "answers_per_s": {:.4f}, "keeps_target": {}}})",
          step.streams,
          step.tpot_s * 1e3,
          step.answers_per_s,
          step.keeps_target));
    }
    out += fmt::format(
        R"({}{{"workload": "{}", "input_tokens": {:.1f}, "output_tokens": {:.1f}, )"
        R"("alone": {{"ttft_ms": {:.3f}, "tpot_ms": {:.3f}}}, "prompts_per_s": {:.4f}, )"
        R"("decode": [{}], "answers_per_s": {:.4f}, "rate": {:.4f}, "split": {}, "colocated": {}, )"
        R"("prefill_per_decode": {:.4f}, "prefill_nodes": {}, "decode_nodes": {}, "winner": "{}"}})",
        out.back() == '[' ? "" : ", ",
        a.workload,
        a.lengths.input,
        a.lengths.output,
        a.alone_ttft_s * 1e3,
        a.alone_tpot_s * 1e3,
        a.prompts_per_s,
        fmt::join(steps, ", "),
        a.answers_per_s,
        a.rate,
        to_json(a.split),
        to_json(a.colocated),
        a.ratio(),
        a.prefill_nodes,
        a.decode_nodes,
        name_of(a.winner));
  }
  return out + "]}";
}

}  // namespace baton::bench
