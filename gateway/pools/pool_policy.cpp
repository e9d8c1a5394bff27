#include "gateway/pools/pool_policy.h"

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

constexpr double kGain = 1.08;        // a change must give at least this much more room
constexpr double kEnough = 1.3;       // room above which nothing needs to be changed
constexpr double kSpare = 1.15;       // room that replicas are planned with
constexpr double kUrgent = 0.9;       // room below which several nodes change at once
constexpr double kMixMoved = 0.25;    // of the logarithm, before a change may be undone
constexpr std::uint32_t kAsked = 3;   // observations in a row, when not urgent
constexpr std::uint32_t kGrowth = 2;  // most replicas for each node that there is

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
    // Those that were asked for and have not come yet stay asked for.
    const auto bounded = [](std::uint32_t nodes, std::uint32_t there, std::uint32_t asked) {
      return std::min(nodes, std::max({kGrowth * there, asked, 1U}));
    };
    need.prefill = bounded(need.prefill, now_there.prefill, replicas_.prefill);
    need.decode = bounded(need.decode, now_there.decode, replicas_.decode);
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

// Nodes that the other pool can give to this one, which is short of them. Without a node of each
// role nothing is served: then its floor does not count.
std::uint32_t PoolPolicy::num_to_rescue(PoolSize there, NodeRole to) const {
  const std::uint32_t have = there.of(to);
  const std::uint32_t others = there.of(other(to));
  const std::uint32_t wanted = std::max(options_.least.of(to), 1U);
  const std::uint32_t floor = std::max(options_.least.of(other(to)), 1U);
  if (have == 0 && others >= 2 && others <= floor) {
    return 1;
  }
  return have < wanted && others > floor ? std::min(wanted - have, others - floor) : 0;
}

// True while a pool is short of nodes that the other can give; the load does not count then.
bool PoolPolicy::rescue(TimePoint now,
                        const PoolObservation& seen,
                        PoolSize there,
                        PoolDecision& decision) {
  const NodeRole to =
      num_to_rescue(there, NodeRole::Prefill) > 0 ? NodeRole::Prefill : NodeRole::Decode;
  const std::uint32_t count = num_to_rescue(there, to);
  if (count == 0 || seen.to_prefill + seen.to_decode > 0) {
    short_since_.reset();
    times_short_ = 0;
    return false;
  }
  times_asked_ = 0;
  short_since_ = short_since_.value_or(now);
  ++times_short_;
  // One that was lost may be back at once. Those that have not come yet may still load their model.
  const bool had_more = most_there_.of(to) > there.of(to);
  if (had_more ? times_short_ < kAsked : now - *short_since_ < options_.cooldown) {
    return true;
  }
  decision.to = to;
  decision.by = SplitBy::Floor;
  decision.change = choose(seen, other(to), count);
  if (!decision.change.empty()) {
    const auto moved = static_cast<std::uint32_t>(decision.change.size());
    decision.split = to == NodeRole::Prefill
                         ? PoolSize{there.prefill + moved, there.decode - moved}
                         : PoolSize{there.prefill - moved, there.decode + moved};
    last_ = Change{now, to, load_.is_known() ? load_.mix() : 0};
  }
  times_short_ = 0;
  return true;
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
  most_there_ = {std::max(most_there_.prefill, there.prefill),
                 std::max(most_there_.decode, there.decode)};
  const bool is_rescue = rescue(now, seen, there, decision);
  if (there.prefill == 0 || there.decode == 0 || (!load_.is_known() && !options_.ratio)) {
    return decision;
  }
  if (load_.is_known()) {
    decision.has_room = true;
    decision.room_now = load_.room(there);
    decision.room_then = decision.room_now;
  }
  if (is_rescue || seen.to_prefill + seen.to_decode > 0) {
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
