#include "bench/pools/sim_pools.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace baton::bench {
namespace {

using gateway::NodeHandle;
using gateway::NodeRole;
using gateway::PoolNode;
using gateway::PoolSize;

constexpr double kNever = std::numeric_limits<double>::infinity();
// A large model on one node.
constexpr double kTokensPerS = 3200;
constexpr double kAttention = 1.4e-8;  // seconds for two tokens that meet
constexpr double kPromptCost = 0.012;
constexpr double kPromptNoise = 0.12;
constexpr double kStep = 0.021;
constexpr double kStepSequence = 4.5e-4;
constexpr double kStepToken = 1.6e-7;
constexpr double kStepNoise = 0.06;
constexpr double kNodeSpread = 0.05;
constexpr std::uint32_t kMaxBatch = 64;
constexpr double kReportKeep = 0.8;

}  // namespace

SimPools::SimPools(const SimPoolOptions& options, PoolSize roles)
    : options_(options), noise_(options.seed ^ 0x5bd1e995U) {
  for (std::uint32_t i = 0; i < roles.prefill + roles.decode; ++i) {
    Node& node = nodes_.emplace_back();
    node.role = i < roles.prefill ? NodeRole::Prefill : NodeRole::Decode;
    node.slowness = noise_.factor(kNodeSpread);
    node.next_s = kNever;
  }
}

void SimPools::run(std::span<const PoolRequest> trace, double until) {
  while (true) {
    const double arrival = next_arrival_ < trace.size() ? trace[next_arrival_].at_s : kNever;
    const auto next = std::ranges::min_element(nodes_, {}, &Node::next_s);
    const double event = nodes_.empty() ? kNever : next->next_s;
    const double at = std::min(arrival, event);
    const double to = std::min(at, until);
    for (const Node& node : nodes_) {
      node_seconds_ += node.state == State::Gone ? 0 : to - now_;
    }
    now_ = to;
    if (at > until || at == kNever) {
      return;
    }
    if (arrival <= event) {
      arrive(trace[next_arrival_++]);
    } else {
      handle(static_cast<std::size_t>(next - nodes_.begin()));
    }
    dispatch();
  }
}

void SimPools::finish(std::span<const PoolRequest> trace) {
  constexpr double kLongEnough = 3600;  // for what a lost pool has left waiting
  const std::uint64_t all = trace.size();
  const double last = now_ + 24 * kLongEnough;
  while (ended_ < all && now_ < last) {
    run(trace, now_ + 60);
  }
}

void SimPools::arrive(const PoolRequest& request) {
  ++seen_.requests;
  seen_.prompt_tokens += request.input;
  seen_.prompt_tokens_squared += static_cast<double>(request.input) * request.input;
  queue_.push_back({.at_s = now_,
                    .context = request.input,
                    .output = std::max(1U, request.output),
                    .input = request.input});
}

bool SimPools::is_decode_open(const Node& node) const {
  return node.role == NodeRole::Decode && node.state == State::Serving &&
         node.batch.size() + node.promised < kMaxBatch;
}

std::size_t SimPools::best_decode() const {
  std::size_t best = nodes_.size();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto load = [&](std::size_t at) { return nodes_[at].batch.size() + nodes_[at].promised; };
    if (is_decode_open(nodes_[i]) && (best == nodes_.size() || load(i) < load(best))) {
      best = i;
    }
  }
  return best;
}

// A request leaves the queue when both nodes can take it.
void SimPools::dispatch() {
  while (!queue_.empty()) {
    const auto free = std::ranges::find_if(nodes_, [](const Node& node) {
      return node.role == NodeRole::Prefill && node.state == State::Serving && !node.is_computing;
    });
    const std::size_t decode = best_decode();
    if (free == nodes_.end() || decode == nodes_.size()) {
      return;
    }
    const Job job = queue_.front();
    queue_.pop_front();
    begin(static_cast<std::size_t>(free - nodes_.begin()), decode, job);
  }
}

void SimPools::begin(std::size_t prefill, std::size_t decode, Job job) {
  Node& node = nodes_[prefill];
  const double tokens = job.context;
  const double seconds = (kPromptCost + tokens / kTokensPerS + kAttention * tokens * tokens) *
                         node.slowness * noise_.factor(kPromptNoise);
  node.is_computing = true;
  node.job = job;
  node.job_decode = decode;
  node.job_ends_s = now_ + seconds;
  node.next_s = std::min(node.next_s, node.job_ends_s);
  const double rate = tokens / seconds;
  node.tokens_per_s =
      node.tokens_per_s > 0 ? kReportKeep * node.tokens_per_s + (1 - kReportKeep) * rate : rate;
  ++nodes_[decode].promised;
}

void SimPools::handle(std::size_t index) {
  Node& node = nodes_[index];
  if (node.state == State::Starting && node.state_until <= now_) {
    node.state = State::Serving;
    node.next_s = kNever;
    node.since_s = now_;
    retime(node);
    return;
  }
  if (node.is_computing && node.job_ends_s <= now_) {
    end_prompt(node);
  }
  if (node.role == NodeRole::Decode) {
    advance(node);
    end_sequences(node);
    if (node.state == State::Draining && node.state_until <= now_) {
      hand_back(node);
    }
  }
  retime(node);
  check_drained(node);
}

void SimPools::end_prompt(Node& node) {
  node.is_computing = false;
  Job job = node.job;
  if (job.first_token_s < 0) {
    job.first_token_s = now_;
    late_ += now_ - job.at_s > options_.ttft_s ? 1 : 0;
  }
  ++job.done;
  --nodes_[node.job_decode].promised;
  if (job.done >= job.output) {
    end(job);
  } else {
    join(node.job_decode, job);
  }
  check_drained(nodes_[node.job_decode]);
}

// A node that is leaving by now takes it still: it was promised. One that an oracle has changed
// does not; the least busy one does.
void SimPools::join(std::size_t decode, const Job& job) {
  if (nodes_[decode].role != NodeRole::Decode) {
    decode = least_busy(NodeRole::Decode);
  }
  Node& node = nodes_[decode];
  advance(node);
  node.context += job.input + job.done;
  node.batch.push_back({job, node.tokens_v, node.tokens_v + (job.output - job.done)});
  retime(node);
}

void SimPools::advance(Node& node) {
  if (node.step_s > 0 && !node.batch.empty()) {
    const double tokens = (now_ - node.since_s) / node.step_s;
    node.tokens_v += tokens;
    node.context += tokens * static_cast<double>(node.batch.size());
  }
  node.since_s = now_;
}

// The time of its steps until something changes, and its next event.
void SimPools::retime(Node& node) {
  node.next_s = node.is_computing ? node.job_ends_s : kNever;
  if (node.state == State::Starting || (node.state == State::Draining && node.state_until > now_)) {
    node.next_s = std::min(node.next_s, node.state_until);
  }
  if (node.batch.empty()) {
    node.context = 0;
    return;
  }
  node.step_s =
      (kStep + kStepSequence * static_cast<double>(node.batch.size()) + kStepToken * node.context) *
      node.slowness * noise_.factor(kStepNoise);
  node.reported_step_s = node.reported_step_s > 0
                             ? kReportKeep * node.reported_step_s + (1 - kReportKeep) * node.step_s
                             : node.step_s;
  const auto first = std::ranges::min_element(node.batch, {}, &Sequence::ends_v);
  node.next_s = std::min(node.next_s, now_ + (first->ends_v - node.tokens_v) * node.step_s);
}

void SimPools::end_sequences(Node& node) {
  constexpr double kClose = 1e-6;  // of a token
  std::erase_if(node.batch, [&](Sequence& sequence) {
    if (sequence.ends_v > node.tokens_v + kClose) {
      return false;
    }
    node.context -= sequence.job.input + sequence.job.output;
    end(sequence.job);
    return true;
  });
}

void SimPools::end(const Job& job) {
  const double ttft = job.first_token_s - job.at_s;
  const double pace = job.output > 1 ? (now_ - job.first_token_s) / (job.output - 1) : 0;
  const bool is_late = ttft > options_.ttft_s;
  good_ += !is_late && pace <= options_.itl_s ? 1 : 0;
  late_ -= is_late ? 1 : 0;
  ++ended_;
  ++seen_.ended;
  seen_.ended_prompt_tokens += job.input;
  seen_.output_tokens += job.output;
}

std::uint64_t SimPools::bad(double now) const {
  std::uint64_t waits_too_long = 0;
  for (const Job& job : queue_) {
    waits_too_long += job.first_token_s < 0 && now - job.at_s > options_.ttft_s ? 1 : 0;
  }
  return ended_ - good_ + late_ + waits_too_long;
}

void SimPools::begin_drain(Node& node, NodeRole next, bool leaves) {
  node.state = State::Draining;
  node.next_role = next;
  node.leaves = leaves;
  node.state_until = now_ + options_.drain_s;
  if (node.role == NodeRole::Decode) {
    advance(node);
  }
  retime(node);
  check_drained(node);
}

// What goes on elsewhere of a sequence: at least its last token.
SimPools::Job SimPools::interrupted(const Node& node, const Sequence& sequence) {
  Job job = sequence.job;
  const auto made = static_cast<std::uint32_t>(node.tokens_v - sequence.begun_v);
  job.done = std::min(job.output - 1, job.done + made);
  job.context = job.input + job.done;
  return job;
}

void SimPools::hand_back(Node& node) {
  for (const Sequence& sequence : node.batch) {
    queue_.push_front(interrupted(node, sequence));
  }
  node.batch.clear();
}

void SimPools::check_drained(Node& node) {
  if (node.state != State::Draining || node.is_computing || !node.batch.empty() ||
      node.promised > 0) {
    return;
  }
  node.role = node.next_role;
  node.state = node.leaves ? State::Gone : State::Starting;
  node.state_until = now_ + options_.restart_s;
  node.tokens_per_s = 0;
  node.reported_step_s = 0;
  node.next_s = node.leaves ? kNever : node.state_until;
}

void SimPools::change(std::span<const NodeHandle> nodes) {
  for (const NodeHandle handle : nodes) {
    Node& node = nodes_[handle.value];
    begin_drain(node, node.role == NodeRole::Prefill ? NodeRole::Decode : NodeRole::Prefill, false);
  }
}

std::size_t SimPools::least_busy(NodeRole role) const {
  std::size_t least = nodes_.size();
  const auto load = [&](std::size_t at) {
    return nodes_[at].batch.size() + (nodes_[at].is_computing ? 1 : 0);
  };
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].role == role && (least == nodes_.size() || load(i) < load(least))) {
      least = i;
    }
  }
  return least;
}

// Its prompt is computed to the end as if nothing had happened; its sequences go on elsewhere.
void SimPools::give_role(Node& node, NodeRole role) {
  advance(node);
  node.role = role;
  const std::vector<Sequence> batch = std::exchange(node.batch, {});
  for (const Sequence& sequence : batch) {
    join(least_busy(NodeRole::Decode), interrupted(node, sequence));
  }
  retime(node);
}

void SimPools::change_at_once(PoolSize roles) {
  PoolSize there = usable();
  for (; there.prefill < roles.prefill; ++there.prefill) {
    give_role(nodes_[least_busy(NodeRole::Decode)], NodeRole::Prefill);
  }
  for (; there.prefill > roles.prefill; --there.prefill) {
    give_role(nodes_[least_busy(NodeRole::Prefill)], NodeRole::Decode);
  }
  dispatch();
}

void SimPools::scale(PoolSize roles) {
  for (const NodeRole role : {NodeRole::Prefill, NodeRole::Decode}) {
    std::uint32_t there = 0;
    for (const Node& node : nodes_) {
      there += node.role == role && (node.state == State::Serving || node.state == State::Starting);
    }
    for (; there < roles.of(role); ++there) {
      auto gone = std::ranges::find(nodes_, State::Gone, &Node::state);
      if (gone == nodes_.end()) {
        nodes_.emplace_back();
        gone = nodes_.end() - 1;
      }
      *gone = Node();
      gone->role = role;
      gone->state = State::Starting;
      gone->slowness = noise_.factor(kNodeSpread);
      gone->state_until = now_ + options_.start_s;
      gone->next_s = gone->state_until;
    }
    for (; there > roles.of(role); --there) {
      Node* least = nullptr;
      for (Node& node : nodes_) {
        if (node.role == role && node.state == State::Serving &&
            (least == nullptr || node.batch.size() < least->batch.size())) {
          least = &node;
        }
      }
      if (least == nullptr) {
        break;
      }
      begin_drain(*least, role, true);
    }
  }
}

PoolSize SimPools::usable() const {
  PoolSize size;
  for (const Node& node : nodes_) {
    if (node.state == State::Serving) {
      ++(node.role == NodeRole::Prefill ? size.prefill : size.decode);
    }
  }
  return size;
}

gateway::PoolObservation SimPools::observe() {
  gateway::PoolObservation seen = std::exchange(seen_, {});
  seen.seconds = now_ - std::exchange(seen_s_, now_);
  seen.waiting = static_cast<std::uint32_t>(queue_.size());
  for (const Job& job : queue_) {
    seen.waiting_prompt_tokens += job.context;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.state == State::Gone) {
      continue;
    }
    if (node.state != State::Serving && !node.leaves) {
      const NodeRole next = node.state == State::Draining ? node.next_role : node.role;
      ++(next == NodeRole::Prefill ? seen.to_prefill : seen.to_decode);
    }
    seen.nodes.push_back(PoolNode{
        .handle = NodeHandle{i},
        .role = node.role,
        .is_usable = node.state == State::Serving,
        .may_change = true,
        .prefill_tokens_per_s = node.tokens_per_s,
        .step_s = node.reported_step_s,
        .running = static_cast<std::uint32_t>(node.batch.size() + (node.is_computing ? 1 : 0)),
        .max_batch = kMaxBatch,
        .kv_tokens = 0});
  }
  return seen;
}

}  // namespace baton::bench
