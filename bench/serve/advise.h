// `bench serve --advise`: how many prefill nodes a workload wants for its decode nodes, and whether
// splitting the phases pays for it, from measurements on this machine alone.
//
// For each workload it starts one prefill and one decode node, half of the processors each, and
// measures (1) a request alone; (2) prompts a second that the prefill node bears, answers of one
// token; (3) answers a second that the decode node bears while the time per output token keeps its
// target, by doubling the streams until it does not. A request costs a prefill node 1/(2) and a
// decode node 1/(3), and that is the ratio of nodes. Then the same arrivals go (4) to that pair and
// (5) to one colocated node on all processors, at a share of what the pair bears; the one with more
// goodput wins.
//
// Thread: the caller's. Failure: a cluster that does not come up, or a measurement without answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/serve/figures.h"
#include "bench/serve/load.h"
#include "common/base/error.h"

namespace baton::bench {

struct AdviseWorkload {
  std::string name;  // for people
  Load load;         // lengths; times are scaled to the rate that is offered
};
// "200/200": lengths of prompts and answers, as Lengths::parse has them; Poisson arrivals.
Result<AdviseWorkload> parse_workload(const std::string& text, std::size_t requests);

struct AdviseOptions {
  std::string model;       // path of a model
  std::string bin_folder;  // where the programs of Baton are
  std::string run_folder;  // configurations and logs
  std::vector<AdviseWorkload> workloads;
  // Not given: 5 times the TTFT and 3 times the time per output token of a request alone.
  std::optional<double> ttft_s;
  std::optional<double> itl_s;
  double load_share = 0.7;                         // of what the pair bears
  double capacity_seconds = 8;                     // of the prefill node's measurement, about
  unsigned nodes = 8;                              // of both roles, for the advice
  std::string prefill_cores;                       // empty: half of this process's processors
  std::string decode_cores;                        // empty: the other half
  std::vector<std::string> set;                    // KEY=VALUE over Baton's configuration
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

struct DecodeStep {
  unsigned streams = 0;
  double tpot_s = 0;         // nine of ten streams
  double answers_per_s = 0;  // of the workload's length
  bool keeps_target = false;
};

enum class Winner : std::uint8_t { Split, Colocated, Neither };

struct Advice {
  std::string workload;
  MeanLengths lengths;
  double alone_ttft_s = 0;
  double alone_tpot_s = 0;
  LatencyTargets targets;
  double prompts_per_s = 0;  // of the prefill node
  std::vector<DecodeStep> decode_steps;
  double answers_per_s = 0;  // of the decode node, within the target
  double rate = 0;           // offered to both modes
  ServeFigures split;
  ServeFigures colocated;
  unsigned prefill_nodes = 0;  // of the nodes asked for
  unsigned decode_nodes = 0;
  Winner winner = Winner::Neither;

  double ratio() const { return answers_per_s / prompts_per_s; }  // prefill to one decode node
};

// The split of `nodes` (2 or more) that bears most requests, at least one of each role.
unsigned best_prefill_nodes(double prompts_per_s, double answers_per_s, unsigned nodes);
// More good answers than chance explains (more than one, and more than a twentieth of all).
Winner winner_of(const ServeFigures& split, const ServeFigures& colocated);

Result<std::vector<Advice>> advise(const AdviseOptions& options);

std::string to_text(const Advice& advice);
std::string to_json(const std::vector<Advice>& advice);

}  // namespace baton::bench
