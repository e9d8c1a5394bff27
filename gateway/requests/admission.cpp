#include "gateway/requests/admission.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace baton::gateway {
namespace {

// A tier whose requests all rest may be owed no more than this.
constexpr double kMostOwedTokens = 200'000;

template <class Queue>
bool is_empty(const Queue& tiers) {
  return std::ranges::all_of(tiers, [](const auto& tier) { return tier.waiting.empty(); });
}

}  // namespace

TierPolicies tier_policies(const std::array<TierSection, kNumTiers>& sections,
                           std::size_t queue_limit,
                           Duration queue_timeout) {
  TierPolicies policies;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    const TierSection& section = sections[i];
    policies[i] = TierPolicy{
        .share = section.share_percent / 100.0,
        .starve_after = section.starve_after,
        .limit = section.queue_limit > 0 ? section.queue_limit : queue_limit,
        .timeout = section.queue_timeout.count() > 0 ? section.queue_timeout : queue_timeout,
        .ttft_target = section.ttft_target,
        .refuse_early = section.refuse_early};
  }
  return policies;
}

std::optional<AdmissionQueue::Ticket> AdmissionQueue::enter(const std::string& model,
                                                            RequestId id,
                                                            Tier tier,
                                                            std::uint64_t tokens,
                                                            TimePoint received,
                                                            TimePoint now,
                                                            TimePoint latest) {
  const TierPolicy& policy = tiers_[index(tier)];
  if (size(tier) >= policy.limit) {
    return std::nullopt;
  }
  Ticket ticket;
  ticket.place =
      Place{policy.ttft_target > Duration{} ? received + policy.ttft_target : TimePoint::max(),
            next_number_++};
  ticket.tier = tier;
  ticket.tokens = tokens;
  ticket.expires = std::min(now + policy.timeout, latest);
  insert(model, id, ticket, now);
  return ticket;
}

void AdmissionQueue::insert(const std::string& model,
                            RequestId id,
                            const Ticket& ticket,
                            TimePoint now) {
  TierQueue& queue = queues_[model][index(ticket.tier)];
  if (queue.waiting.empty()) {
    queue.last_begun = now;
  }
  const Waiting entry{id, ticket.expires, ticket.tokens};
  BATON_CHECK(queue.waiting.emplace(ticket.place, entry).second, "a request waits twice");
  queue.tokens += ticket.tokens;
  ++sizes_[index(ticket.tier)];
}

void AdmissionQueue::reenter(const std::string& model,
                             RequestId id,
                             Ticket& ticket,
                             TimePoint now) {
  insert(model, id, ticket, now);
  TierQueue& queue = queues_[model][index(ticket.tier)];
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    queues_[model][i].owed -= std::exchange(ticket.owed_change[i], 0);
  }
  if (queue.last_begun == ticket.taken || queue.waiting.size() == 1) {
    queue.last_begun = ticket.begun_before;
  }
}

void AdmissionQueue::take(const std::string& model, Ticket& ticket, TimePoint now) {
  const auto found = queues_.find(model);
  BATON_CHECK(found != queues_.end(), "a request begins that did not wait");
  const auto work = static_cast<double>(ticket.tokens);
  TierQueue& own = found->second[index(ticket.tier)];
  // Only what is owed is paid for: the rest of the work is nobody's share.
  const double pays = own.owed > 0 ? work : 0;
  ticket.taken = now;
  ticket.begun_before = std::exchange(own.last_begun, now);
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    TierQueue& tier = found->second[i];
    ticket.owed_change[i] = -tier.owed;
    // One that does not wait saves nothing up, but what it was ahead goes by.
    const double most = tier.waiting.empty() ? 0 : kMostOwedTokens;
    tier.owed = std::max(tier.owed, std::min(most, tier.owed + work * tiers_[i].share));
  }
  own.owed -= pays;
  leave(model, ticket);
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    ticket.owed_change[i] += found->second[i].owed;
  }
}

void AdmissionQueue::leave(const std::string& model, const Ticket& ticket) {
  const auto found = queues_.find(model);
  if (found == queues_.end()) {
    return;
  }
  TierQueue& queue = found->second[index(ticket.tier)];
  if (queue.waiting.erase(ticket.place) == 0) {
    return;
  }
  queue.tokens -= ticket.tokens;
  --sizes_[index(ticket.tier)];
  if (queue.waiting.empty()) {
    queue.owed = std::min(queue.owed, 0.0);
  }
}

std::optional<RequestId> AdmissionQueue::next(const std::string& model,
                                              TimePoint now,
                                              Scan& scan) const {
  const auto found = queues_.find(model);
  if (found == queues_.end()) {
    return std::nullopt;
  }
  // Lower is better: starving, the one that starves longest; then owed, then the rest, the highest
  // tier of each.
  constexpr int kNone = 3;
  int best_rank = kNone;
  std::size_t best = 0;
  std::map<Place, Waiting>::const_iterator candidate;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    const TierQueue& tier = found->second[i];
    const auto first = tier.waiting.upper_bound(scan.after[i]);
    if (first == tier.waiting.end()) {
      continue;
    }
    const int rank = now - tier.last_begun >= tiers_[i].starve_after ? 0 : tier.owed > 0 ? 1 : 2;
    if (rank < best_rank ||
        (rank == 0 && best_rank == 0 && tier.last_begun < found->second[best].last_begun)) {
      best_rank = rank;
      best = i;
      candidate = first;
    }
  }
  if (best_rank == kNone) {
    return std::nullopt;
  }
  scan.after[best] = candidate->first;
  return candidate->second.id;
}

std::vector<std::string> AdmissionQueue::models() const {
  std::vector<std::string> names;
  for (const auto& [model, tiers] : queues_) {
    if (!is_empty(tiers)) {
      names.push_back(model);
    }
  }
  return names;
}

std::vector<RequestId> AdmissionQueue::expired(TimePoint now) const {
  std::vector<RequestId> ids;
  for (const auto& [model, tiers] : queues_) {
    for (const TierQueue& tier : tiers) {
      for (const auto& [place, waiting] : tier.waiting) {
        if (waiting.expires <= now) {
          ids.push_back(waiting.id);
        }
      }
    }
  }
  return ids;
}

std::size_t AdmissionQueue::size() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0});
}

Backlog AdmissionQueue::backlog(const std::string& model, TimePoint now) const {
  Backlog backlog{};
  if (const auto found = queues_.find(model); found != queues_.end()) {
    for (std::size_t i = 0; i < kNumTiers; ++i) {
      const TierQueue& tier = found->second[i];
      const Duration since = tier.waiting.empty() ? Duration{} : now - tier.last_begun;
      backlog[i] = {tier.tokens, tier.waiting.size(), tier.owed, since};
    }
  }
  return backlog;
}

}  // namespace baton::gateway
