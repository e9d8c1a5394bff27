#include "gateway/routing/route_cost.h"

#include <algorithm>

#include "gateway/routing/link_speeds.h"

namespace baton::gateway {
namespace {

constexpr double kUnmeasuredRate = 1000;        // tokens a second
constexpr double kUnmeasuredStep = 0.02;        // seconds
constexpr double kGuessedFullBatch = 1.0 / 16;  // of a step, that a full batch takes longer
constexpr double kPullRoundTrip = 2e-3;         // seconds
// Of those that wait behind work, not all would have had to be served there.
constexpr double kHeldUp = 0.7;
// Transfers hide behind computing for the most part, but take bandwidth from others.
constexpr double kMoveShare = 0.1;
// Above this share of the memory a node soon has to take blocks from others.
constexpr double kFullShare = 0.9;

// 0: not measured.
double step_base(const NodeView& node) {
  const bool is_learned = node.step_base_s > 0 || node.step_s_per_sequence > 0;
  return is_learned ? node.step_base_s : node.step_s;
}

std::uint32_t blocks_for(const NodeView& node, std::uint32_t tokens) {
  return tokens / std::max(1U, node.block_tokens) + 1;
}

}  // namespace

bool has_room(const NodeView& decode, const RouteNeed& need) {
  return decode.blocks_free >= blocks_for(decode, need.total_tokens);
}

RouteCost::RouteCost(std::span<const NodeView> nodes, const RouteNeed& need)
    : nodes_(nodes), need_(need), terms_(nodes.size()) {
  double sum = 0;
  std::uint32_t measured = 0;
  double steps = 0;
  std::uint32_t paced = 0;
  double sequences = 0;
  std::uint32_t shared = 0;
  std::uint32_t prefills = 0;
  std::uint32_t busy = 0;
  for (const NodeView& node : nodes) {
    if (node.role == NodeRole::Prefill) {
      ++prefills;
      busy += node.queued_tokens > 0 ? 1 : 0;
    }
    if (node.prefill_tokens_per_s > 0) {
      sum += node.prefill_tokens_per_s;
      ++measured;
    }
    if (const double step = step_base(node); step > 0 && node.role == NodeRole::Decode) {
      steps += step;
      ++paced;
    }
    if (node.step_s_per_sequence > 0 && node.role == NodeRole::Decode) {
      sequences += node.step_s_per_sequence;
      ++shared;
    }
  }
  usual_step_ = paced > 0 ? steps / paced : kUnmeasuredStep;
  usual_sequence_ = shared > 0 ? sequences / shared : 0;
  usual_rate_ = measured > 0 ? sum / measured : kUnmeasuredRate;
  // A second of work on a queue that is busy for a share b of the time holds up about b / (1 - b)
  // others.
  const double idle = prefills - busy + prefills / (prefills + 1.0);
  busy_weight_ = prefills > 0 ? kHeldUp * busy / idle : 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    terms_[i].compute = compute(nodes[i], held(i));
    terms_[i].wait = nodes[i].role == NodeRole::Prefill ? queue_seconds(i) : effect(nodes[i]);
  }
}

std::uint32_t RouteCost::held(std::size_t node) const {
  const std::uint32_t known = need_.held_tokens.empty() ? 0 : need_.held_tokens[node];
  return std::min(known, std::max(1U, need_.context_tokens) - 1);
}

double RouteCost::rate(const NodeView& node) const {
  return node.prefill_tokens_per_s > 0 ? node.prefill_tokens_per_s : usual_rate_;
}

double RouteCost::queue_seconds(std::size_t prefill) const {
  const NodeView& node = nodes_[prefill];
  return node.work_s < 0 ? static_cast<double>(node.queued_tokens) / rate(node)
                         : node.work_s + static_cast<double>(node.foreign_tokens) / rate(node);
}

double RouteCost::compute(const NodeView& node, std::uint32_t held) const {
  const double tokens = std::max(1U, need_.context_tokens) - held;
  if (node.prefill_s_per_token <= 0) {
    return tokens / rate(node);
  }
  // Each token meets all before it.
  const double meetings = tokens * (held + tokens / 2);
  return tokens * node.prefill_s_per_token + meetings * node.prefill_s_per_meeting;
}

double RouteCost::effect(const NodeView& decode) const {
  const double batch = std::max(1U, decode.max_batch);
  double base = step_base(decode);
  double each = decode.step_s_per_sequence;
  if (each <= 0) {
    // Nobody saw it with batches of several sizes. A small guess: it spreads requests over nodes
    // that are equal otherwise, and sends none away from the blocks that it needs. A new node is
    // as others are, or it would be given all that comes.
    const bool is_new = base <= 0;
    base = is_new ? usual_step_ : base;
    each = is_new && usual_sequence_ > 0 ? usual_sequence_ : base * kGuessedFullBatch / batch;
  }
  const double running = decode.running;
  const double own = base + each * (running + 1);
  double steps = own + each * running;  // its own pace, and what it takes from the others
  if (running >= batch) {
    steps += own * (running - batch + 1);  // it waits for a place
  }
  if (decode.blocks_total > 0) {
    const double free = static_cast<double>(decode.blocks_free) -
                        static_cast<double>(blocks_for(decode, need_.total_tokens));
    const double used = 1 - free / decode.blocks_total;
    steps += own * std::max(0.0, used - kFullShare) / (1 - kFullShare);
  }
  return need_.itl_tokens * steps;
}

double RouteCost::move(std::size_t prefill, std::size_t decode, std::uint32_t tokens) const {
  const NodeView& to = nodes_[decode];
  const double per_byte = need_.links == nullptr
                              ? LinkSpeeds::kUnmeasured
                              : need_.links->seconds_per_byte({nodes_[prefill].handle, to.handle});
  return static_cast<double>(tokens) / std::max(1U, to.block_tokens) *
         static_cast<double>(to.layout.block_bytes_all_layers()) * per_byte;
}

RouteCost::Work RouteCost::work(std::size_t prefill, std::size_t decode) const {
  const std::uint32_t own = held(prefill);
  const std::uint32_t theirs = held(decode);
  const auto usual = [&](std::uint32_t held) {
    return static_cast<double>(std::max(1U, need_.context_tokens) - held) / usual_rate_;
  };
  Work work{terms_[prefill].compute, usual(own)};
  if (need_.pulls && theirs > own) {
    const double pull = kPullRoundTrip + move(prefill, decode, theirs - own);
    const double whole = pull + compute(nodes_[prefill], theirs);
    if (whole < work.seconds) {
      work = {whole, pull + usual(theirs)};
    }
  }
  return work;
}

double RouteCost::remote(std::size_t prefill, std::size_t decode) const {
  const Work work = this->work(prefill, decode);
  return terms_[prefill].wait + work.seconds + busy_weight_ * work.usual_seconds +
         kMoveShare * move(prefill, decode, need_.context_tokens - held(decode)) +
         terms_[decode].wait;
}

double RouteCost::local(std::size_t decode) const {
  const NodeView& node = nodes_[decode];
  const double queue = static_cast<double>(node.queued_tokens) / rate(node);
  // Those that run there wait for the prompt as well.
  return queue + terms_[decode].compute * (1.0 + node.running) + terms_[decode].wait;
}

}  // namespace baton::gateway
