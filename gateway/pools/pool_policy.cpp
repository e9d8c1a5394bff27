#include "gateway/pools/pool_policy.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

constexpr double kGain = 1.08;       // a change must give at least this much more room
constexpr double kEnough = 1.3;      // room above which nothing needs to be changed
constexpr double kSpare = 1.15;      // room that replicas are planned with
constexpr double kUrgent = 0.9;      // room below which several nodes change at once
constexpr double kMixMoved = 0.25;   // of the logarithm, before a change may be undone
constexpr std::uint32_t kAsked = 3;  // observations in a row, when not urgent

NodeRole other(NodeRole role) {
  return role == NodeRole::Prefill ? NodeRole::Decode : NodeRole::Prefill;
}

PoolSize count_usable(const PoolObservation& seen) {
  PoolSize size;
  for (const PoolNode& node : seen.nodes) {
    if (node.is_usable) {
      ++(node.role == NodeRole::Prefill ? size.prefill : size.decode);
    }
  }
  return size;
}

std::uint32_t num_changeable(const PoolObservation& seen, NodeRole from) {
  return static_cast<std::uint32_t>(std::ranges::count_if(seen.nodes, [from](const auto& node) {
    return node.role == from && node.is_usable && node.may_change;
  }));
}

// Those with the least in work.
std::vector<NodeHandle> choose(const PoolObservation& seen, NodeRole from, std::uint32_t count) {
  std::vector<const PoolNode*> nodes;
  for (const PoolNode& node : seen.nodes) {
    if (node.role == from && node.is_usable && node.may_change) {
      nodes.push_back(&node);
    }
  }
  std::ranges::stable_sort(nodes, {}, [](const PoolNode* node) { return node->running; });
  std::vector<NodeHandle> chosen;
  for (std::size_t i = 0; i < nodes.size() && i < count; ++i) {
    chosen.push_back(nodes[i]->handle);
  }
  return chosen;
}

}  // namespace

// The best that the nodes which may change, and the bounds, allow.
PoolSize PoolPolicy::wanted_split(const PoolObservation& seen, PoolSize now_there) const {
  const auto there = static_cast<std::int64_t>(now_there.prefill);
  const auto all = there + now_there.decode;
  const auto to_decode = static_cast<std::int64_t>(num_changeable(seen, NodeRole::Prefill));
  const auto to_prefill = static_cast<std::int64_t>(num_changeable(seen, NodeRole::Decode));
  const auto allows = [&](std::int64_t prefill) {
    const std::int64_t decode = all - prefill;
    // Bounds that are broken already (too few nodes) may be broken on, not more so.
    return prefill >= std::min<std::int64_t>(there, options_.least.prefill) &&
           decode >= std::min<std::int64_t>(now_there.decode, options_.least.decode) &&
           prefill <= std::max<std::int64_t>(there, options_.most.prefill) &&
           decode <= std::max<std::int64_t>(now_there.decode, options_.most.decode);
  };
  PoolSize best = now_there;
  double best_score = 0;
  bool is_first = true;
  const auto score = [&](PoolSize size) {
    if (options_.ratio) {
      const double wanted = static_cast<double>(options_.ratio->prefill) /
                            (options_.ratio->prefill + options_.ratio->decode);
      return -std::abs(size.prefill - wanted * static_cast<double>(all));
    }
    return load_.room(size);
  };
  for (std::int64_t prefill = there - to_decode; prefill <= there + to_prefill; ++prefill) {
    if (!allows(prefill)) {
      continue;
    }
    const PoolSize size{static_cast<std::uint32_t>(prefill),
                        static_cast<std::uint32_t>(all - prefill)};
    const double own = score(size);
    const bool is_nearer =
        std::abs(prefill - there) < std::abs(static_cast<std::int64_t>(best.prefill) - there);
    if (is_first || own > best_score || (own == best_score && is_nearer)) {
      best = size;
      best_score = own;
      is_first = false;
    }
  }
  return best;
}

PoolSize PoolPolicy::wanted_replicas(TimePoint now, PoolSize now_there) {
  PoolSize need = now_there;
  const bool is_seen = load_.is_known() || load_.is_idle();
  if (is_seen) {
    const auto fewest = [](std::uint32_t least, std::uint32_t most, auto room) {
      std::uint32_t nodes = least;
      while (nodes < most && room(nodes) < kSpare) {
        ++nodes;
      }
      return nodes;
    };
    need.prefill = fewest(options_.least.prefill, options_.most.prefill, [this](std::uint32_t n) {
      return load_.is_known() ? load_.prefill_room(n) : PoolLoad::kMostRoom;
    });
    need.decode = fewest(options_.least.decode, options_.most.decode, [this](std::uint32_t n) {
      return load_.is_known() ? load_.decode_room(n) : PoolLoad::kMostRoom;
    });
  }
  if (options_.ratio && is_seen) {
    const PoolSize& ratio = *options_.ratio;
    const std::uint32_t times = std::max((need.prefill + ratio.prefill - 1) / ratio.prefill,
                                         (need.decode + ratio.decode - 1) / ratio.decode);
    need = {times * ratio.prefill, times * ratio.decode};
  }
  need.prefill = std::clamp(need.prefill, options_.least.prefill, options_.most.prefill);
  need.decode = std::clamp(need.decode, options_.least.decode, options_.most.decode);
  if (need.prefill >= replicas_.prefill && need.decode >= replicas_.decode) {
    lower_since_ = now;
    lower_ = {};
  }
  lower_ = {std::max(lower_.prefill, need.prefill), std::max(lower_.decode, need.decode)};
  replicas_ = {std::max(replicas_.prefill, need.prefill), std::max(replicas_.decode, need.decode)};
  if (now - lower_since_ >= options_.cooldown && load_.is_settled()) {
    replicas_ = lower_;
    lower_since_ = now;
    lower_ = need;
  }
  return replicas_;
}

bool PoolPolicy::is_due(TimePoint now, const PoolDecision& decision, NodeRole to) {
  if (options_.ratio) {
    return !last_ || now - last_->at >= options_.cooldown;
  }
  if (decision.room_now >= kEnough || decision.room_then < decision.room_now * kGain) {
    times_asked_ = 0;
    return false;
  }
  times_asked_ = to == asked_ ? times_asked_ + 1 : 1;
  asked_ = to;
  const bool is_urgent = decision.room_now < kUrgent;
  if (times_asked_ < kAsked && !(is_urgent && times_asked_ > 1)) {
    return false;
  }
  if (!last_) {
    return true;
  }
  if (now - last_->at < options_.cooldown) {
    return false;
  }
  return last_->to == to || std::abs(load_.mix() - last_->mix) >= kMixMoved;
}

std::uint32_t PoolPolicy::step(const PoolDecision& decision,
                               PoolSize now_there,
                               NodeRole to) const {
  const std::uint32_t distance = decision.split.of(to) - now_there.of(to);
  if (decision.room_now >= kUrgent && !options_.ratio) {
    return 1;
  }
  return std::clamp(now_there.of(other(to)) / 2, 1U, distance);
}

// Without a node of each role nothing is served, so there is no load to go by.
void PoolPolicy::rescue(TimePoint now,
                        const PoolObservation& seen,
                        PoolSize there,
                        PoolDecision& decision) {
  const NodeRole to = there.prefill == 0 ? NodeRole::Prefill : NodeRole::Decode;
  if (there.of(other(to)) < 2 || seen.to_prefill + seen.to_decode > 0) {
    empty_since_.reset();
    times_asked_ = 0;
    return;
  }
  empty_since_ = empty_since_.value_or(now);
  ++times_asked_;
  // One that was lost may be back at once. Those that have not come yet may still load their model.
  const bool had = to == NodeRole::Prefill ? had_prefill_ : had_decode_;
  if (had ? times_asked_ < kAsked : now - *empty_since_ < options_.cooldown) {
    return;
  }
  decision.to = to;
  decision.by = SplitBy::Floor;
  decision.change = choose(seen, other(to), 1);
  if (!decision.change.empty()) {
    decision.split =
        to == NodeRole::Prefill ? PoolSize{1, there.decode - 1} : PoolSize{there.prefill - 1, 1};
    last_ = Change{now, to, load_.is_known() ? load_.mix() : 0};
  }
  times_asked_ = 0;
}

PoolDecision PoolPolicy::decide(TimePoint now, const PoolObservation& seen) {
  load_.observe(seen);
  const PoolSize there = count_usable(seen);
  PoolDecision decision;
  if (!load_.is_known() && seen.to_prefill + seen.to_decode > 0) {
    replicas_ = {};  // what was there is something else now
  }
  decision.desired =
      wanted_replicas(now, {there.prefill + seen.to_prefill, there.decode + seen.to_decode});
  decision.split = {there.prefill + seen.to_prefill, there.decode + seen.to_decode};
  decision.by = options_.ratio ? SplitBy::Ratio : SplitBy::Load;
  had_prefill_ = had_prefill_ || there.prefill > 0;
  had_decode_ = had_decode_ || there.decode > 0;
  if (there.prefill == 0 || there.decode == 0) {
    rescue(now, seen, there, decision);
    return decision;
  }
  empty_since_.reset();
  if (!load_.is_known() && !options_.ratio) {
    return decision;
  }
  if (load_.is_known()) {
    decision.has_room = true;
    decision.room_now = load_.room(there);
    decision.room_then = decision.room_now;
  }
  if (seen.to_prefill + seen.to_decode > 0) {
    return decision;
  }
  decision.split = wanted_split(seen, there);
  if (load_.is_known()) {
    decision.room_then = load_.room(decision.split);
  }
  if (decision.split == there) {
    times_asked_ = 0;
    return decision;
  }
  const NodeRole to = decision.split.prefill > there.prefill ? NodeRole::Prefill : NodeRole::Decode;
  if (is_due(now, decision, to)) {
    decision.to = to;
    decision.change = choose(seen, other(to), step(decision, there, to));
    last_ = Change{now, to, load_.is_known() ? load_.mix() : 0};
    times_asked_ = 0;
  }
  return decision;
}

}  // namespace baton::gateway
