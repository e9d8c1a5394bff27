#include "gateway/requests/probe.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::gateway {
namespace {

const std::vector<double> kTtftEdges{0.001, 0.005, 0.01, 0.02, 0.04, 0.06,  0.08, 0.1,
                                     0.25,  0.5,   0.75, 1.0,  2.5,  5.0,   7.5,  10.0,
                                     20.0,  40.0,  80.0, 160., 640., 2560.0};
const std::vector<double> kItlEdges{0.01,
                                    0.025,
                                    0.05,
                                    0.075,
                                    0.1,
                                    0.15,
                                    0.2,
                                    0.3,
                                    0.4,
                                    0.5,
                                    0.75,
                                    1.0,
                                    2.5,
                                    5.0,
                                    7.5,
                                    10.0,
                                    20.0,
                                    40.0,
                                    80.0};
const std::vector<double> kRequestEdges{0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                        5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                        60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

// With the targets among them.
std::vector<double> with(std::vector<double> edges,
                         std::initializer_list<std::chrono::milliseconds> targets) {
  for (const std::chrono::milliseconds target : targets) {
    edges.push_back(static_cast<double>(target.count()) / 1000.0);
  }
  std::ranges::sort(edges);
  const auto repeated = std::ranges::unique(edges);
  edges.erase(repeated.begin(), repeated.end());
  return edges;
}

// vLLM's names for what the gateway sees from end to end.
void add_vllm_names(Metrics& metrics) {
  const Metrics::Labels role{{"role", "gateway"}};
  const auto same = [&](const char* name, const char* of) {
    metrics.also_as({.name = name, .of = of, .labels = role});
  };
  same("vllm:time_to_first_token_seconds", "baton_time_to_first_token_seconds");
  same("vllm:inter_token_latency_seconds", "baton_inter_token_latency_seconds");
  same("vllm:e2e_request_latency_seconds", "baton_e2e_request_latency_seconds");
  same("vllm:request_queue_time_seconds", "baton_request_queue_time_seconds");
  same("vllm:prompt_tokens_total", "baton_prompt_tokens_total");
  same("vllm:generation_tokens_total", "baton_generation_tokens_total");
  same("vllm:num_requests_waiting", "baton_num_requests_waiting");
  same("vllm:num_requests_running", "baton_num_requests_running");
}

}  // namespace

struct Probe::Models {
  Metrics& metrics;
  const SloSection slo;
  std::map<std::string, ModelProbe> by_name;

  ModelProbe make(const std::string& model) const {
    ModelProbe probe;
    const Metrics::Labels name{{"model_name", model}};
    probe.prompt_tokens =
        metrics.counter("baton_prompt_tokens_total", "Prompt tokens of ended requests", name);
    probe.generated_tokens =
        metrics.counter("baton_generation_tokens_total", "Tokens given to clients", name);
    for (std::size_t i = 0; i < kNumTiers; ++i) {
      const Metrics::Labels labels{{"model_name", model}, {"tier", std::string(kTierNames[i])}};
      probe.ttft[i] = metrics.histogram("baton_time_to_first_token_seconds",
                                        "Request received to first token",
                                        with(kTtftEdges, {slo.tiers[i].ttft}),
                                        labels);
      probe.itl[i] = metrics.histogram("baton_inter_token_latency_seconds",
                                       "Between two tokens",
                                       with(kItlEdges, {slo.tiers[i].itl}),
                                       labels);
      probe.e2e[i] = metrics.histogram("baton_e2e_request_latency_seconds",
                                       "Request received to its end",
                                       kRequestEdges,
                                       labels);
    }
    return probe;
  }
};

const ModelProbe& Probe::of(const std::string& model) const {
  if (models_ == nullptr) {
    return none_;
  }
  const auto known = models_->by_name.find(model);
  return known != models_->by_name.end()
             ? known->second
             : models_->by_name.emplace(model, models_->make(model)).first->second;
}

Probe::Probe(Metrics& metrics, const SloSection& slo)
    : models_(std::make_shared<Models>(metrics, slo)) {
  add_vllm_names(metrics);
  const auto requests = [&](const char* status) {
    return metrics.counter(
        "baton_requests_total", "Generation requests by their end", {{"status", status}});
  };
  finished = requests("finished");
  failed = requests("failed");
  cancelled = requests("cancelled");
  refused = requests("refused");
  refused_early = metrics.counter("baton_requests_refused_early_total",
                                  "Requests refused since their first token would come too late");
  refused_late = metrics.counter(
      "baton_requests_refused_late_total",
      "Requests refused after a wait, when their first token could no longer come in time");
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    waiting[i] = metrics.gauge("baton_num_requests_waiting_by_tier",
                               "Requests in the queue, by tier",
                               {{"tier", std::string(kTierNames[i])}});
  }
  disconnects = metrics.counter("baton_client_disconnects_total",
                                "Requests whose client left before the end");
  failed_attempts =
      metrics.counter("baton_failed_attempts_total", "Attempts that ended by a fault of a node");
  for (std::size_t i = 0; i < kNumFailoverReasons; ++i) {
    failovers[i] =
        metrics.counter("baton_failovers_total",
                        "Attempts that were given up for another one, by reason",
                        {{"reason", std::string(to_string(static_cast<FailoverReason>(i)))}});
  }
  resumed_tokens = metrics.counter("baton_resumed_tokens_total",
                                   "Output tokens that attempts after the first began with");
  reserve_busy =
      metrics.counter("baton_reserve_busy_total", "Requests for which a decode node had no room");
  stale_events = metrics.counter("baton_stale_token_events_total",
                                 "Token events of ended requests or old attempts, and repeats");
  bad_events = metrics.counter("baton_bad_token_events_total", "Token events that break the wire");
  const auto phase = [&](Metrics::Labels labels, std::chrono::milliseconds target) {
    return metrics.histogram("baton_request_phase_seconds",
                             "Phases of a request: queue (until nodes are found), prefill (on its "
                             "node), transfer (end of prefill to the commit)",
                             with(kTtftEdges, {target}),
                             std::move(labels));
  };
  for (std::size_t i = 0; i < queue.size(); ++i) {
    queue[i] =
        phase({{"phase", "queue"}, {"waiting_on", std::string(kWaitingOnNames[i])}}, slo.queue);
  }
  prefill = phase({{"phase", "prefill"}}, slo.prefill);
  transfer = phase({{"phase", "transfer"}}, slo.transfer);
  queue_time = metrics.histogram(
      "baton_request_queue_time_seconds", "Request received to given to nodes", kRequestEdges);
  const auto target = [&](const char* name, std::string_view tier) {
    return metrics.gauge("baton_slo_target_seconds",
                         "What is promised, by objective; by tier where it is the tier's",
                         {{"slo", name}, {"tier", std::string(tier)}});
  };
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    ttft_target[i] = target("ttft", kTierNames[i]);
    itl_target[i] = target("itl", kTierNames[i]);
  }
  queue_target = target("queue", "");
  prefill_target = target("prefill", "");
  transfer_target = target("transfer", "");
  show(slo);
  queue_depth = metrics.gauge("baton_num_requests_waiting", "Requests in the queue");
  in_work = metrics.gauge("baton_num_requests_running", "Requests on nodes");
}

void Probe::show(const SloSection& slo) const {
  const auto set = [](const Gauge& gauge, std::chrono::milliseconds target) {
    gauge.set(static_cast<double>(target.count()) / 1000.0);
  };
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    set(ttft_target[i], slo.tiers[i].ttft);
    set(itl_target[i], slo.tiers[i].itl);
  }
  set(queue_target, slo.queue);
  set(prefill_target, slo.prefill);
  set(transfer_target, slo.transfer);
}

void Probe::ended(Phase phase) const {
  const Counter& counter = phase == Phase::Finished  ? finished
                           : phase == Phase::Failed  ? failed
                           : phase == Phase::Refused ? refused
                                                     : cancelled;
  counter.add();
}

}  // namespace baton::gateway
