#include "bench/route/replay.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <queue>
#include <utility>

#include "bench/route/sim_nodes.h"
#include "common/base/check.h"
#include "gateway/routing/predicted_work.h"
#include "gateway/routing/routing.h"

namespace baton::bench {
namespace {

using gateway::NodeHandle;
using gateway::NodeRole;
using gateway::NodeView;
using gateway::PromptChains;
using gateway::Route;
using gateway::RoutePolicy;
using gateway::Routing;

constexpr double kControlSeconds = 0.001;  // the calls before and the frames after
// What a router that learns nothing from nodes believes that each holds: 2M tokens, as others do.
constexpr std::size_t kRemembered = 4096;

TimePoint at(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

RoutePolicy rule_of(ReplayPolicy policy) {
  switch (policy) {
    case ReplayPolicy::Random:
      return RoutePolicy::Random;
    case ReplayPolicy::LeastLoad:
      return RoutePolicy::LeastLoad;
    case ReplayPolicy::Approximate:
    case ReplayPolicy::Precise:
      return RoutePolicy::Prefix;
    case ReplayPolicy::Cost:
      break;
  }
  return RoutePolicy::Cost;
}

// A node as the gateway keeps it: the last heartbeat, and what it has given since.
struct Seen {
  NodeView view;
  std::uint64_t events = 0;
  std::uint32_t credits_used = 0;
  gateway::PredictedWork work;
  std::uint64_t tokens_given = 0;    // to compute
  std::uint64_t contexts_given = 0;  // with what is cached
  std::uint32_t sequences_given = 0;
  std::uint64_t foreign_tokens = 0;  // reported beyond what we had given then
  std::uint32_t foreign_running = 0;
  BlockCache remembered{kRemembered};  // of what was sent, for Approximate
};

// What the options leave open.
ReplayOptions settled(ReplayOptions options, const Trace& trace) {
  constexpr std::uint32_t kRunning = 256;  // blocks of requests that run
  if (options.decode_blocks == 0) {
    options.decode_blocks = options.cache_blocks + kRunning;
  }
  // One that fits nowhere would wait for ever.
  for (const TraceRequest& request : trace) {
    options.decode_blocks = std::max(
        options.decode_blocks, (request.input_length + request.output_length) / kTraceBlock + 2);
  }
  return options;
}

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options, ReplayPolicy policy)
      : trace_(trace),
        options_(settled(options, trace)),
        policy_(policy),
        noise_(options.seed),
        routing_({.policy = rule_of(policy)}),
        jobs_(trace.size()),
        sent_(trace.size()),
        booked_(trace.size()),
        first_counted_(first_counted(trace, options)) {
    for (std::uint32_t i = 0; i < options.prefill_nodes; ++i) {
      prefills_.emplace_back(noise_, options.cache_blocks);
      add_view(NodeRole::Prefill);
    }
    for (std::uint32_t i = 0; i < options.decode_nodes; ++i) {
      decodes_.emplace_back(noise_, options_.decode_blocks);
      add_view(NodeRole::Decode);
    }
    result_.policy = policy;
  }

  ReplayResult run() {
    for (std::size_t i = 0; i < trace_.size(); ++i) {
      jobs_[i].request = &trace_[i];
    }
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      schedule(options_.heartbeat_s * noise_.uniform(), Kind::Beat, i);
    }
    schedule(trace_.front().at_s, Kind::Arrival, 0);
    while (result_.finished < trace_.size()) {
      BATON_CHECK(!events_.empty(), "a replay stands still");
      const Event event = events_.top();
      events_.pop();
      now_ = event.at_s;
      handle(event);
    }
    result_.ttft_s = spread_of(std::move(ttft_));
    result_.itl_s = spread_of(std::move(itl_));
    double tokens = 0;
    double held = 0;
    double pulled = 0;
    for (std::size_t i = first_counted_; i < jobs_.size(); ++i) {
      const SimJob& job = jobs_[i];
      tokens += job.request->input_length;
      held += job.held;
      pulled += job.pulled;
      result_.computed_tokens += job.to_compute();
      result_.moved_tokens += job.moved();
    }
    result_.hit_rate = held / tokens;
    result_.pulled_rate = pulled / tokens;
    return result_;
  }

 private:
  enum class Kind : std::uint8_t { Arrival, Computed, Joins, Step, Beat };
  struct Event {
    double at_s = 0;
    std::uint64_t number = 0;
    Kind kind = Kind::Arrival;
    std::size_t subject = 0;  // request, or node: prefill nodes first, then decode nodes
    bool operator>(const Event& other) const {
      return at_s != other.at_s ? at_s > other.at_s : number > other.number;
    }
  };

  void add_view(NodeRole role) {
    Seen seen;
    seen.view.handle = NodeHandle{seen_.size() + 1};
    seen.view.name_hash = Noise(seen_.size() + 1).bits();
    seen.view.role = role;
    seen.view.block_tokens = kTraceBlock;
    seen.view.layout =
        KvLayout{.layers = 32, .kv_heads = 8, .head_dim = 128, .block_tokens = kTraceBlock};
    seen.view.max_batch = options_.max_batch;
    seen.view.blocks_total = role == NodeRole::Decode ? options_.decode_blocks : 0;
    seen.view.blocks_free = seen.view.blocks_total;
    seen_.push_back(std::move(seen));
  }
  Seen& prefill_seen(const SimJob& job) { return seen_[job.prefill]; }
  Seen& decode_seen(const SimJob& job) { return seen_[options_.prefill_nodes + job.decode]; }
  double link(const SimJob& job) const {
    return link_bytes_per_s(job.prefill, job.decode, options_.seed);
  }

  void schedule(double at_s, Kind kind, std::size_t subject) {
    events_.push({at_s, next_number_++, kind, subject});
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::Arrival:
        waiting_.push_back(event.subject);
        if (event.subject + 1 < trace_.size()) {
          schedule(trace_[event.subject + 1].at_s, Kind::Arrival, event.subject + 1);
        }
        return dispatch();
      case Kind::Computed:
        computed(event.subject);
        return dispatch();
      case Kind::Joins:
        return joins(event.subject);
      case Kind::Step:
        step(event.subject);
        return dispatch();
      case Kind::Beat:
        beat(event.subject);
        schedule(now_ + options_.heartbeat_s, Kind::Beat, event.subject);
        return dispatch();
    }
  }

  // ---- the gateway

  void dispatch() {
    while (!waiting_.empty()) {
      const std::size_t number = waiting_.front();
      const auto views = this->views();
      PromptChains chains{{kTraceBlock, trace_[number].blocks}};
      const auto held = held_tokens(views, chains);
      gateway::RouteNeed need;
      need.prompt_tokens = need.context_tokens = trace_[number].input_length;
      need.total_tokens = need.prompt_tokens + trace_[number].output_length;
      need.policy = rule_of(policy_);
      need.held_tokens = held;
      need.draw = Noise(options_.seed + number).bits();
      need.links = &routing_.links();
      const auto route = gateway::choose_route(views, need);
      if (!route) {
        return;
      }
      take(number, *route, views, chains);
    }
  }

  std::vector<NodeView> views() const {
    std::vector<NodeView> views;
    for (const Seen& seen : seen_) {
      NodeView view = seen.view;
      view.credits_left = options_.credits - std::min(options_.credits, seen.credits_used);
      view.queued_tokens = seen.tokens_given + seen.foreign_tokens;
      view.foreign_tokens = seen.foreign_tokens;
      view.work_s = policy_ == ReplayPolicy::Cost ? seen.work.left(at(now_)) : -1;
      view.running = seen.sequences_given + seen.foreign_running;
      views.push_back(view);
    }
    routing_.describe(views, at(now_));
    return views;
  }

  std::vector<std::uint32_t> held_tokens(const std::vector<NodeView>& views, PromptChains& chains) {
    std::vector<std::uint32_t> held(views.size(), 0);
    if (policy_ == ReplayPolicy::Approximate) {
      for (std::size_t i = 0; i < seen_.size(); ++i) {
        held[i] =
            static_cast<std::uint32_t>(seen_[i].remembered.held(chains[0].hashes)) * kTraceBlock;
      }
    } else if (policy_ == ReplayPolicy::Precise || policy_ == ReplayPolicy::Cost) {
      const auto known = routing_.held_tokens(views, {}, chains, at(now_));
      held.assign(known.begin(), known.end());
    }
    return held;
  }

  void take(std::size_t number,
            const Route& route,
            const std::vector<NodeView>& views,
            PromptChains& chains) {
    SimJob& job = jobs_[number];
    job.prefill = static_cast<std::uint32_t>(route.prefill.value - 1);
    job.decode = static_cast<std::uint32_t>(route.decode.value - 1 - options_.prefill_nodes);
    if (!decodes_[job.decode].grant(job)) {
      decode_seen(job).view.is_busy = true;
      return;
    }
    waiting_.pop_front();
    sent_[number] = routing_.sent(route, views, {}, chains);
    const std::uint32_t input = job.request->input_length;
    booked_[number] = input - std::min(route.held_tokens, input - 1);
    for (Seen* seen : {&prefill_seen(job), &decode_seen(job)}) {
      seen->remembered.use(job.request->blocks);
    }
    ++prefill_seen(job).credits_used;
    prefill_seen(job).tokens_given += booked_[number];
    prefill_seen(job).contexts_given += input;
    job.predicted_s = route.prefill_s;
    prefill_seen(job).work.begin(job.predicted_s, at(now_));
    ++decode_seen(job).sequences_given;
    SimPrefill& node = prefills_[job.prefill];
    node.queue.push_back(number);
    if (node.queue.size() == 1) {
      begin(node);
    }
  }

  void beat(std::size_t node) {
    Seen& seen = seen_[node];
    seen.view.is_busy = false;
    BlockCache::Changes changes;
    if (seen.view.role == NodeRole::Prefill) {
      SimPrefill& prefill = prefills_[node];
      seen.view.prefill_tokens_per_s = static_cast<float>(prefill.tokens_per_s);
      std::uint64_t reported = 0;
      for (std::size_t i = 0; i < prefill.queue.size(); ++i) {
        const SimJob& job = jobs_[prefill.queue[i]];
        reported += i == 0 ? job.to_compute() : job.request->input_length;
      }
      seen.foreign_tokens = reported - std::min(reported, seen.contexts_given);
      changes = prefill.cache.take_changes();
    } else {
      SimDecode& decode = decodes_[node - options_.prefill_nodes];
      seen.view.step_s = static_cast<float>(decode.step_s);
      seen.view.blocks_free = static_cast<std::uint32_t>(decode.blocks_free());
      const auto running = static_cast<std::uint32_t>(decode.running.size());
      seen.foreign_running = running - std::min(running, seen.sequences_given);
      routing_.on_step(seen.view.handle, decode.steps, running, decode.step_s, at(now_));
      changes = decode.cache.take_changes();
    }
    if (!changes.stored.empty() || !changes.removed.empty()) {
      routing_.on_events(seen.view.handle,
                         {.sequence = ++seen.events,
                          .reset = seen.events == 1,
                          .stored = changes.stored,
                          .removed = changes.removed});
    }
  }

  // ---- the nodes

  void begin(SimPrefill& node) {
    const std::size_t number = node.queue.front();
    SimJob& job = jobs_[number];
    schedule(now_ + node.begin(job, link(job), noise_), Kind::Computed, number);
  }

  void computed(std::size_t number) {
    SimJob& job = jobs_[number];
    SimPrefill& node = prefills_[job.prefill];
    const bool was_alone = node.queue.size() == 1;
    node.end(job);
    node.queue.pop_front();
    if (!node.queue.empty()) {
      begin(node);
    }
    Seen& prefill = prefill_seen(job);
    Seen& decode = decode_seen(job);
    --prefill.credits_used;
    prefill.tokens_given -= booked_[number];
    prefill.contexts_given -= job.request->input_length;
    prefill.work.end(job.predicted_s, at(now_));
    routing_.settled(sent_[number], at(now_), true);
    if (number >= first_counted_) {
      ttft_.push_back(now_ + kControlSeconds - job.request->at_s);
    }
    job.last_token_s = now_;
    job.tokens_left = job.request->output_length - 1;
    job.exposed_s = exposed_seconds(job, link(job));
    if (was_alone) {
      routing_.on_prefill(
          prefill.view.handle, job.held + job.pulled, job.to_compute(), job.compute_s);
    }
    routing_.on_transfer({prefill.view.handle, decode.view.handle},
                         static_cast<std::uint64_t>(job.moved() * kTokenBytes),
                         job.exposed_s,
                         job.compute_s);
    schedule(now_ + job.exposed_s, Kind::Joins, number);
  }

  void joins(std::size_t number) {
    const SimJob& job = jobs_[number];
    if (job.tokens_left == 0) {
      return leave(job);
    }
    SimDecode& node = decodes_[job.decode];
    node.arrived.push_back(number);
    if (!node.is_stepping) {
      begin_step(job.decode);
    }
  }

  void begin_step(std::uint32_t decode) {
    SimDecode& node = decodes_[decode];
    while (!node.arrived.empty() && node.running.size() < options_.max_batch) {
      node.running.push_back(node.arrived.front());
      node.arrived.pop_front();
    }
    node.is_stepping = !node.running.empty();
    if (node.is_stepping) {
      std::uint64_t context = 0;
      for (const std::size_t number : node.running) {
        context += trace_[number].input_length;
      }
      schedule(now_ + node.step_seconds(node.running.size(), context, noise_), Kind::Step, decode);
    }
  }

  void step(std::size_t decode) {
    SimDecode& node = decodes_[decode];
    std::erase_if(node.running, [this](std::size_t number) {
      SimJob& job = jobs_[number];
      if (number >= first_counted_) {
        itl_.push_back(now_ - job.last_token_s);
      }
      job.last_token_s = now_;
      if (--job.tokens_left > 0) {
        return false;
      }
      leave(job);
      return true;
    });
    begin_step(static_cast<std::uint32_t>(decode));
  }

  void leave(const SimJob& job) {
    decodes_[job.decode].release(job);
    --decode_seen(job).sequences_given;
    decode_seen(job).view.is_busy = false;
    ++result_.finished;
  }

  const Trace& trace_;
  const ReplayOptions options_;
  const ReplayPolicy policy_;
  Noise noise_;
  Routing routing_;
  std::vector<SimPrefill> prefills_;
  std::vector<SimDecode> decodes_;
  std::vector<Seen> seen_;    // prefill nodes, then decode nodes
  std::vector<SimJob> jobs_;  // by request
  std::vector<gateway::SentBlocks::Ticket> sent_;
  std::vector<std::uint64_t> booked_;
  const std::size_t first_counted_;
  std::deque<std::size_t> waiting_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  double now_ = 0;
  std::vector<double> ttft_;
  std::vector<double> itl_;
  ReplayResult result_;
};

}  // namespace

std::string_view to_string(ReplayPolicy policy) {
  switch (policy) {
    case ReplayPolicy::Random:
      return "random";
    case ReplayPolicy::LeastLoad:
      return "least load";
    case ReplayPolicy::Approximate:
      return "approximate";
    case ReplayPolicy::Precise:
      return "precise";
    case ReplayPolicy::Cost:
      break;
  }
  return "cost (ours)";
}

std::size_t first_counted(const Trace& trace, const ReplayOptions& options) {
  return static_cast<std::size_t>(options.warm_up * static_cast<double>(trace.size()));
}

ReplayResult replay(const Trace& trace, const ReplayOptions& options, ReplayPolicy policy) {
  BATON_CHECK(!trace.empty(), "a trace without requests");
  return Replay(trace, options, policy).run();
}

}  // namespace baton::bench
