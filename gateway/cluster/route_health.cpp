#include "gateway/cluster/route_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace baton::gateway {
namespace {

std::string name_of(const RouteHealth::Part& part) {
  return part.is_pair() ? fmt::format("pair '{}', '{}'", part.node.name, part.peer.name)
                        : fmt::format("node '{}'", part.node.name);
}

bool is_open(const CircuitBreaker& breaker, TimePoint now) {
  return breaker.state(now) != BreakerState::Closed;
}

}  // namespace

Blamed blamed_for(ErrorCode code, bool is_refusal, bool has_peer) {
  switch (code) {
    // What the client sent.
    case ErrorCode::InvalidArgument:
    case ErrorCode::InvalidConfig:
    case ErrorCode::ContextTooLong:
    case ErrorCode::NotFound:
    case ErrorCode::Unauthorized:
    case ErrorCode::Cancelled:
    // Load, or leaving in order.
    case ErrorCode::Busy:
    case ErrorCode::NoBlocks:
    case ErrorCode::Preempted:
    case ErrorCode::Draining:
    case ErrorCode::Unavailable:
    // Digests are counted by themselves.
    case ErrorCode::ChecksumMismatch:
      return Blamed::Nobody;
    case ErrorCode::InvalidModel:
    case ErrorCode::OutOfMemory:
    case ErrorCode::IoError:
    case ErrorCode::Internal:
      return Blamed::Node;
    case ErrorCode::PeerDead:
    case ErrorCode::Mismatch:
    case ErrorCode::PeerStalled:
    case ErrorCode::StaleIncarnation:
    case ErrorCode::GrantRevoked:
    case ErrorCode::ProtocolError:
    case ErrorCode::Timeout:
      return has_peer && !is_refusal ? Blamed::Pair : Blamed::Node;
  }
  return Blamed::Nobody;
}

RouteHealth::RouteHealth(const Logger& log,
                         Metrics* metrics,
                         BreakerLimits limits,
                         std::function<void()> on_change)
    : log_(log), metrics_(metrics), limits_(limits), on_change_(std::move(on_change)) {
  if (metrics_ != nullptr) {
    barred_gauge_ = metrics_->gauge(
        "baton_pairs_out", "Pairs of nodes out of routing after digest mismatches in a row");
    const auto open = [&](const char* of) {
      return metrics_->gauge("baton_circuit_breakers_open",
                             "Nodes and pairs that get no work, or one try, after faults in a row",
                             {{"of", of}});
    };
    open_nodes_ = open("node");
    open_pairs_ = open("pair");
  }
}

// ---- breakers

void RouteHealth::failed(const Part& part, TimePoint begun, TimePoint now) {
  CircuitBreaker& breaker = breakers_[part];
  const bool was_open = is_open(breaker, now);
  if (!breaker.failed(limits_, begun, now)) {
    return;
  }
  log_.error("{} gets no work for {} ms: {} faults in a row",
             name_of(part),
             std::chrono::ceil<std::chrono::milliseconds>(breaker.open_until() - now).count(),
             breaker.faults());
  trips_of(part).add();
  count_open(part, was_open ? 0 : 1);
}

Counter RouteHealth::trips_of(const Part& part) const {
  return metrics_ == nullptr
             ? Counter()
             : metrics_->counter(
                   "baton_circuit_breaker_trips_total",
                   "Times a node or a pair was taken out of routing after faults in a row",
                   {{"node", part.node.name}, {"peer", part.peer.name}});
}

void RouteHealth::served(const Part& part, TimePoint begun, TimePoint now) {
  const auto found = breakers_.find(part);
  if (found == breakers_.end()) {
    return;
  }
  if (found->second.served(begun, now)) {
    log_.info("{} serves again", name_of(part));
    count_open(part, -1);
  } else if (found->second.is_new()) {
    breakers_.erase(found);
  }
}

bool RouteHealth::takes(const Part& part, TimePoint now) const {
  const auto found = breakers_.find(part);
  return found == breakers_.end() || found->second.takes(now);
}

std::shared_ptr<const void> RouteHealth::begin(const std::vector<Part>& parts, TimePoint now) {
  std::shared_ptr<const void> token;
  for (const Part& part : parts) {
    const auto found = breakers_.find(part);
    if (found == breakers_.end() || found->second.state(now) != BreakerState::HalfOpen ||
        !found->second.takes(now)) {
      continue;
    }
    if (token == nullptr) {
      token = std::make_shared<char>();
    }
    found->second.try_with(token);
    log_.info("{} gets one request, to try it", name_of(part));
  }
  return token;
}

template <class Predicate>
void RouteHealth::erase_breakers(Predicate is_over) {
  for (auto at = breakers_.begin(); at != breakers_.end();) {
    const auto& [part, breaker] = *at;
    if (!is_over(part, breaker)) {
      ++at;
      continue;
    }
    // Whether it is open or half-open does not depend on the time.
    if (is_open(breaker, TimePoint{})) {
      count_open(part, -1);
    }
    at = breakers_.erase(at);
  }
}

void RouteHealth::count_open(const Part& part, int change) {
  (part.is_pair() ? open_pairs_ : open_nodes_).add(change);
}

void RouteHealth::sweep(TimePoint now) {
  erase_breakers(
      [&](const Part&, const CircuitBreaker& breaker) { return breaker.is_stale(limits_, now); });
}

std::vector<RouteHealth::Breaker> RouteHealth::breakers(TimePoint now) const {
  std::vector<Breaker> all;
  for (const auto& [part, breaker] : breakers_) {
    all.push_back({part,
                   breaker.state(now),
                   breaker.faults(),
                   std::max(Duration{}, breaker.open_until() - now)});
  }
  return all;
}

// ---- digests

void RouteHealth::mismatch(const Pair& pair) {
  mismatches_of(pair).add();
  const std::uint32_t count = ++mismatches_[pair];
  log_.warn("blocks from '{}' arrived changed on '{}', {} in a row",
            pair.prefill.name,
            pair.decode.name,
            count);
  if (count != kMaxMismatches) {
    return;
  }
  log_.error("the pair '{}', '{}' is out of routing until one of them has started anew",
             pair.prefill.name,
             pair.decode.name);
  barred_gauge_.set(static_cast<double>(++num_barred_));
  on_change_();
}

Counter RouteHealth::mismatches_of(const Pair& pair) {
  if (metrics_ == nullptr) {
    return {};
  }
  const std::pair names{pair.prefill.name, pair.decode.name};
  const auto known = mismatch_counters_.find(names);
  if (known != mismatch_counters_.end()) {
    return known->second;
  }
  trips_of({pair.prefill, pair.decode});
  return mismatch_counters_
      .emplace(names,
               metrics_->counter("baton_digest_mismatches_total",
                                 "Transfers whose blocks arrived changed",
                                 {{"prefill", names.first}, {"decode", names.second}}))
      .first->second;
}

void RouteHealth::verified(const Pair& pair) {
  mismatches_of(pair);  // and trips: an increase from 0 is seen only where there was a 0
  // One that is barred stays so: a transfer begun before proves nothing.
  if (const auto found = mismatches_.find(pair);
      found != mismatches_.end() && found->second < kMaxMismatches) {
    mismatches_.erase(found);
  }
}

std::vector<RouteHealth::Pair> RouteHealth::barred() const {
  std::vector<Pair> pairs;
  for (const auto& [pair, count] : mismatches_) {
    if (count >= kMaxMismatches) {
      pairs.push_back(pair);
    }
  }
  return pairs;
}

// ---- lives

void RouteHealth::started(const NodeLife& node) {
  trips_of({node, {}});
  const auto is_earlier = [&](const NodeLife& other) {
    return other.name == node.name && other.incarnation != node.incarnation;
  };
  erase_breakers([&](const Part& part, const CircuitBreaker&) {
    return is_earlier(part.node) || is_earlier(part.peer);
  });
  bool came_back = false;
  for (auto at = mismatches_.begin(); at != mismatches_.end();) {
    const auto& [pair, count] = *at;
    if (!is_earlier(pair.prefill) && !is_earlier(pair.decode)) {
      ++at;
      continue;
    }
    if (count >= kMaxMismatches) {
      log_.info("the pair '{}', '{}' is in routing again: '{}' has started anew",
                pair.prefill.name,
                pair.decode.name,
                node.name);
      --num_barred_;
      came_back = true;
    }
    at = mismatches_.erase(at);
  }
  if (came_back) {
    barred_gauge_.set(static_cast<double>(num_barred_));
    on_change_();
  }
}

void RouteHealth::left(const NodeLife& node) {
  erase_breakers([&](const Part& part, const CircuitBreaker&) {
    return part.is_pair() && (part.node == node || part.peer == node);
  });
}

}  // namespace baton::gateway
