#include "gateway/pair_health.h"

namespace baton::gateway {

PairHealth::PairHealth(const Logger& log, Metrics* metrics, std::function<void()> on_change)
    : log_(log), metrics_(metrics), on_change_(std::move(on_change)) {
  if (metrics_ != nullptr) {
    out_gauge_ = metrics_->gauge("baton_pairs_out",
                                 "Pairs of nodes out of routing after digest mismatches in a row");
  }
}

void PairHealth::mismatch(const Pair& pair) {
  if (metrics_ != nullptr) {
    metrics_
        ->counter("baton_digest_mismatches_total",
                  "Transfers whose blocks arrived changed",
                  {{"prefill", pair.prefill.name}, {"decode", pair.decode.name}})
        .add();
  }
  const std::uint32_t count = ++in_a_row_[pair];
  log_.warn("blocks from '{}' arrived changed on '{}', {} in a row",
            pair.prefill.name,
            pair.decode.name,
            count);
  if (count != kMaxInARow) {
    return;
  }
  log_.error("the pair '{}', '{}' is out of routing until one of them has started anew",
             pair.prefill.name,
             pair.decode.name);
  out_gauge_.set(static_cast<double>(++num_out_));
  on_change_();
}

void PairHealth::good(const Pair& pair) {
  // One that is out stays so: a transfer begun before proves nothing.
  if (const auto found = in_a_row_.find(pair);
      found != in_a_row_.end() && found->second < kMaxInARow) {
    in_a_row_.erase(found);
  }
}

void PairHealth::started(const NodeLife& node) {
  const auto is_earlier = [&](const NodeLife& other) {
    return other.name == node.name && other.incarnation != node.incarnation;
  };
  bool came_back = false;
  for (auto at = in_a_row_.begin(); at != in_a_row_.end();) {
    const auto& [pair, count] = *at;
    if (!is_earlier(pair.prefill) && !is_earlier(pair.decode)) {
      ++at;
      continue;
    }
    if (count >= kMaxInARow) {
      log_.info("the pair '{}', '{}' is in routing again: '{}' has started anew",
                pair.prefill.name,
                pair.decode.name,
                node.name);
      --num_out_;
      came_back = true;
    }
    at = in_a_row_.erase(at);
  }
  if (came_back) {
    out_gauge_.set(static_cast<double>(num_out_));
    on_change_();
  }
}

std::vector<PairHealth::Pair> PairHealth::out() const {
  std::vector<Pair> pairs;
  for (const auto& [pair, count] : in_a_row_) {
    if (count >= kMaxInARow) {
      pairs.push_back(pair);
    }
  }
  return pairs;
}

}  // namespace baton::gateway
