#include "bench/serve/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::bench {
namespace {

std::string row(const char* name, const Spread& s) {
  return fmt::format("{:<26} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n",
                     name,
                     s.mean * 1e3,
                     s.p50 * 1e3,
                     s.p90 * 1e3,
                     s.p99 * 1e3,
                     s.max * 1e3);
}

std::string object(const char* name, const Spread& s) {
  return fmt::format(
      R"("{}": {{"count": {}, "mean": {:.3f}, "p50": {:.3f}, "p90": {:.3f}, "p99": {:.3f}, )"
      R"("max": {:.3f}}})",
      name,
      s.count,
      s.mean * 1e3,
      s.p50 * 1e3,
      s.p90 * 1e3,
      s.p99 * 1e3,
      s.max * 1e3);
}

}  // namespace

ServeFigures figures_of(const std::vector<Served>& served, const LatencyTargets& targets) {
  ServeFigures out;
  out.targets = targets;
  out.requests = served.size();
  std::vector<double> ttft;
  std::vector<double> itl;
  std::vector<double> tpot;
  std::vector<double> e2e;
  std::vector<double> late;
  double input = 0;
  double output = 0;
  for (const Served& one : served) {
    late.push_back(one.late_s);
    if (!one.is_whole) {
      (one.status == 429 || one.status == 503 ? out.refused : out.failed) += 1;
      continue;
    }
    ++out.whole;
    out.seconds = std::max(out.seconds, one.due_s + one.e2e_s);
    input += one.input_tokens;
    output += one.output_tokens;
    ttft.push_back(one.ttft_s);
    e2e.push_back(one.e2e_s);
    itl.insert(itl.end(), one.gaps_s.begin(), one.gaps_s.end());
    if (one.output_tokens > 1) {
      tpot.push_back(one.tpot_s());
    }
    const bool kept_ttft = one.ttft_s <= targets.ttft_s;
    const bool kept_itl = one.tpot_s() <= targets.itl_s;
    out.kept_ttft += kept_ttft ? 1 : 0;
    out.kept_itl += kept_itl ? 1 : 0;
    out.good += kept_ttft && kept_itl ? 1 : 0;
  }
  if (out.seconds > 0) {
    out.input_rate = input / out.seconds;
    out.output_rate = output / out.seconds;
  }
  if (!served.empty() && served.back().due_s > 0) {
    out.offered_rate = static_cast<double>(served.size()) / served.back().due_s;
  }
  out.ttft_s = spread_of(std::move(ttft));
  out.itl_s = spread_of(std::move(itl));
  out.tpot_s = spread_of(std::move(tpot));
  out.e2e_s = spread_of(std::move(e2e));
  out.late_s = spread_of(std::move(late));
  return out;
}

std::string to_text(const ServeFigures& f) {
  std::string out = fmt::format(
      "{} requests, {:.3f} a second: {} whole, {} refused, {} failed, in {:.1f} s\n"
      "tokens a second: {:.1f} in, {:.1f} out\n"
      "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      f.requests,
      f.offered_rate,
      f.whole,
      f.refused,
      f.failed,
      f.seconds,
      f.input_rate,
      f.output_rate,
      "ms",
      "mean",
      "p50",
      "p90",
      "p99",
      "max");
  out += row("time to first token", f.ttft_s);
  out += row("between tokens (ITL)", f.itl_s);
  out += row("time per output token", f.tpot_s);
  out += row("end to end", f.e2e_s);
  out += row("sent later than due", f.late_s);
  out += fmt::format(
      "goodput {:.3f} requests a second: {} of {} ({:.0f} %) with TTFT <= {:.0f} ms ({}) and time "
      "per output token <= {:.1f} ms ({})\n",
      f.goodput(),
      f.good,
      f.requests,
      f.good_share() * 100,
      f.targets.ttft_s * 1e3,
      f.kept_ttft,
      f.targets.itl_s * 1e3,
      f.kept_itl);
  if (f.client_was_late()) {
    out += fmt::format(
        "the client itself was late: one request in ten left {:.0f} ms or more after it was due, "
        "so that fewer ran at once than planned; give the client more processors or ask for "
        "less\n",
        f.late_s.p90 * 1e3);
  }
  return out;
}

std::string to_json(const ServeFigures& f) {
  return fmt::format(
      R"({{"requests": {}, "whole": {}, "refused": {}, "failed": {}, "seconds": {:.3f}, )"
      R"("offered_rate": {:.4f}, "input_tokens_per_s": {:.2f}, "output_tokens_per_s": {:.2f}, )"
      R"({}, {}, {}, {}, {}, "targets": {{"ttft_ms": {:.3f}, "itl_ms": {:.3f}}}, )"
      R"("kept_ttft": {}, "kept_itl": {}, "good": {}, "goodput": {:.4f}, "good_share": {:.4f}}})",
      f.requests,
      f.whole,
      f.refused,
      f.failed,
      f.seconds,
      f.offered_rate,
      f.input_rate,
      f.output_rate,
      object("ttft_ms", f.ttft_s),
      object("itl_ms", f.itl_s),
      object("tpot_ms", f.tpot_s),
      object("e2e_ms", f.e2e_s),
      object("late_ms", f.late_s),
      f.targets.ttft_s * 1e3,
      f.targets.itl_s * 1e3,
      f.kept_ttft,
      f.kept_itl,
      f.good,
      f.goodput(),
      f.good_share());
}

}  // namespace baton::bench
