// The one queue: requests of each model wait here by tier until a pair can take them.
//
// Which tier is next, for each model: one from which nothing was begun for its starvation bound
// while something waited; else the highest that has got less than its share of the work; else the
// highest. Shares are kept as balances: each piece of work begun earns every waiting tier its share
// of it, and a tier that is owed something pays for its own. Within a tier the earliest deadline is
// first, then the oldest. Each tier has a bound of its own over all models, so that none can fill
// the queue for another.
//
// Thread: the control strand. Failure: `enter` refuses when the tier's queue is full.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/config/gateway_section.h"
#include "common/exec/executor.h"

namespace baton::gateway {

// What the configuration says of a tier, with the queue's own limits filled in.
struct TierPolicy {
  double share = 0;           // [0, 1] of the work begun; those of all tiers add up to at most 1
  Duration starve_after{};    // longest time without any of its work begun
  std::size_t limit = 0;      // requests waiting
  Duration timeout{};         // longest wait
  Duration ttft_target{};     // deadline of the first token; 0: none
  bool refuse_early = false;  // when that cannot be met
};
using TierPolicies = std::array<TierPolicy, kNumTiers>;

// What waits of a tier, and how it stands with its share.
struct TierBacklog {
  std::uint64_t tokens = 0;
  std::size_t requests = 0;
  double owed = 0;         // tokens; negative: it was ahead
  Duration since_begun{};  // or since something waits; 0: nothing does
};
using Backlog = std::array<TierBacklog, kNumTiers>;

TierPolicies tier_policies(const std::array<TierSection, kNumTiers>& sections,
                           std::size_t queue_limit,
                           Duration queue_timeout);

class AdmissionQueue {
 public:
  explicit AdmissionQueue(TierPolicies tiers) : tiers_(tiers) {}
  // For those that enter from now on; who waits keeps place and time.
  void set_policies(TierPolicies tiers) { tiers_ = tiers; }

  // The order within a tier.
  struct Place {
    TimePoint due;             // deadline of the first token
    std::uint64_t number = 0;  // by arrival, over all models
    auto operator<=>(const Place&) const = default;
  };
  // A request that comes back keeps its place.
  struct Ticket {
    Place place;
    Tier tier = Tier::Default;
    std::uint64_t tokens = 0;  // its work, as `enter` was told
    TimePoint expires;         // leaves the queue then
    // Of the last `take`, for undoing it.
    std::array<double, kNumTiers> owed_change{};
    TimePoint taken;
    TimePoint begun_before;
  };

  // Nothing when its tier's queue is full. `received`: what the deadline counts from. `latest`: it
  // waits no longer than that, whatever its tier's timeout.
  std::optional<Ticket> enter(const std::string& model,
                              RequestId id,
                              Tier tier,
                              std::uint64_t tokens,
                              TimePoint received,
                              TimePoint now,
                              TimePoint latest = TimePoint::max());
  // Back to its old place, with what it has paid given back; always accepted, since it was counted
  // before.
  void reenter(const std::string& model, RequestId id, Ticket& ticket, TimePoint now);
  // Leaves to be begun: its tier has got this work.
  void take(const std::string& model, Ticket& ticket, TimePoint now);
  // Leaves for good.
  void leave(const std::string& model, const Ticket& ticket);

  // The candidates of one model, best first, each once: `scan` knows where it stands.
  struct Scan {
    std::array<Place, kNumTiers> after{};
  };
  std::optional<RequestId> next(const std::string& model, TimePoint now, Scan& scan) const;

  std::vector<std::string> models() const;
  // Those whose time is over; they stay until they leave.
  std::vector<RequestId> expired(TimePoint now) const;
  std::size_t size() const;
  std::size_t size(Tier tier) const { return sizes_[index(tier)]; }
  const TierPolicy& policy(Tier tier) const { return tiers_[index(tier)]; }
  const TierPolicies& policies() const { return tiers_; }
  Backlog backlog(const std::string& model, TimePoint now) const;

 private:
  struct Waiting {
    RequestId id{};
    TimePoint expires;
    std::uint64_t tokens = 0;
  };
  struct TierQueue {
    std::map<Place, Waiting> waiting;
    std::uint64_t tokens = 0;
    double owed = 0;       // tokens; negative: it was ahead
    TimePoint last_begun;  // or since when something waits
  };
  using ModelQueue = std::array<TierQueue, kNumTiers>;

  static std::size_t index(Tier tier) { return static_cast<std::size_t>(tier); }
  void insert(const std::string& model, RequestId id, const Ticket& ticket, TimePoint now);

  TierPolicies tiers_;
  std::array<std::size_t, kNumTiers> sizes_{};
  std::uint64_t next_number_ = 1;
  std::map<std::string, ModelQueue> queues_;
};

}  // namespace baton::gateway
