// What a run of `bench serve` comes to: percentiles, rates and goodput, as text, JSON and a page
// with plots.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/serve/serve.h"
#include "bench/spread.h"

namespace baton::bench {

struct LatencyTargets {
  double ttft_s = 2.5;
  double itl_s = 0.1;
};

struct ServeFigures {
  LatencyTargets targets;
  std::size_t requests = 0;
  std::size_t whole = 0;
  std::size_t refused = 0;  // 429, 503
  std::size_t failed = 0;   // all others that are not whole
  double seconds = 0;       // start to the last whole answer
  double offered_rate = 0;  // requests a second, as planned
  double input_rate = 0;    // tokens a second of whole answers
  double output_rate = 0;
  Spread ttft_s, itl_s, tpot_s, e2e_s, late_s;
  std::size_t kept_ttft = 0;
  std::size_t kept_itl = 0;
  std::size_t good = 0;  // both

  // Requests left so late that the load was another one than planned: by a tenth of the target of
  // the first token.
  bool client_was_late() const { return late_s.p90 > targets.ttft_s / 10; }
  double goodput() const { return seconds > 0 ? static_cast<double>(good) / seconds : 0; }
  double good_share() const {
    return requests > 0 ? static_cast<double>(good) / static_cast<double>(requests) : 0;
  }
};
ServeFigures figures_of(const std::vector<Served>& served, const LatencyTargets& targets);

std::string to_text(const ServeFigures& figures);
std::string to_json(const ServeFigures& figures);
// A page of its own: the figures, and a curve of each time's distribution. No outside asset.
std::string to_html(const ServeFigures& figures,
                    const std::vector<Served>& served,
                    const std::string& title);

}  // namespace baton::bench
