// Prefixes on their way from decode nodes into this node's own arena, instead of being computed.
//
//   Asking --Pulled--> Landing --all bytes--> Fencing --no receive left--> done: the blocks hold it
//      any of them --refusal, time limit, loss, cancel--> Quarantined --fenced--> free blocks
//
// The decode node writes under a lease of this node, checked as any lease is; whoever waits for the
// prefix is told of a failure at once and computes, while the blocks stay until nothing can land.
// Where that is not so within kQuietLimit, the link to the decode node is given up.
//
// Owner: PrefillNode. Thread: control strand; the transport's callbacks post themselves there.
// Failure: `on_done` gets it; never worse than computing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "common/exec/executor.h"
#include "common/types/kv_grant.h"
#include "engine/kv/kv_memory.h"
#include "prefill_node/decode_links.h"
#include "prefill_node/probe.h"
#include "prefill_node/pull_cost.h"
#include "transfer/transport.h"

namespace baton::prefill_node {

using PullId = StrongId<struct PullIdTag, std::uint64_t>;

class Pulls {
 public:
  static constexpr std::chrono::milliseconds kQuietLimit{5'000};

  struct Parts {
    Executor& executor;
    transfer::Transport& transport;
    engine::KvMemory& kv;
    DecodeLinks& links;
    Probe& probe;
    const Logger& log;
    RandomSource random;
    NodeName node;
    Incarnation incarnation{};
    bool enabled = true;
    std::function<void()> on_freed;  // blocks have come out of quarantine
  };
  // What came: all blocks that were given, of which the first `count` hold the prefix.
  struct Pulled {
    std::vector<engine::BlockLease> blocks;
    std::uint32_t count = 0;
  };
  using OnDone = std::function<void(Result<Pulled>)>;

  explicit Pulls(Parts parts) : parts_(std::move(parts)) {}
  Pulls(const Pulls&) = delete;
  Pulls& operator=(const Pulls&) = delete;
  ~Pulls() = default;

  // Blocks behind the first `held` that are better fetched from the grant's node than computed, for
  // a context of so many tokens. 0: compute.
  std::uint32_t count_worth(const KvGrant& grant,
                            std::uint32_t held,
                            std::uint32_t context,
                            double tokens_per_second) const;
  // Fetches blocks [held, held + blocks.size()) of the context `tokens` into `blocks`. `on_done`
  // runs once, later, unless cancelled. REQUIRES: tokens covers them.
  PullId start(const KvGrant& grant,
               std::vector<TokenId> tokens,
               std::uint32_t held,
               std::vector<engine::BlockLease> blocks,
               double tokens_per_second,
               OnDone on_done);
  void cancel(PullId id);

  std::size_t num_open() const { return pulls_.size(); }  // in quarantine too

 private:
  enum class State : std::uint8_t { Asking, Landing, Fencing, Quarantined };
  struct Pull {
    State state = State::Asking;
    KvGrant grant;  // ours: the lease that the decode node writes under
    std::vector<TokenId> tokens;
    std::vector<engine::BlockLease> blocks;
    std::unique_ptr<transfer::LeaseReceiver> receiver;  // null until asked
    std::optional<UserId> user;
    TimerHandle limit;
    TimePoint started{};
    std::uint32_t count = 0;  // blocks that the decode node has sent
    transfer::Sent sent;
    OnDone on_done;
  };

  void ask(PullId id);  // opens the lease
  void answered(PullId id, const Result<wire::Frame>& answer);
  Status check(const Pull& pull, const wire::Pulled& message) const;
  void landed(PullId id, const Result<transfer::LeaseReceiver::Done>& done);
  void fenced(PullId id);
  void fail(PullId id, const Error& why);
  // Tells the decode node to stop and leaves the blocks to the fence.
  void quarantine(PullId id, Pull& pull, const std::string& reason);
  void writer_quiesced(PullId id);
  Pull* find(PullId id);
  template <class Function>
  auto on_strand(Function function);

  const Parts parts_;
  PullCost cost_;
  std::map<PullId, Pull> pulls_;
  std::uint64_t next_id_ = 1;
  std::uint32_t next_epoch_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::prefill_node
