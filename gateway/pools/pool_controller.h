// Watches the load of each model's pools, says how many nodes of each role they should have, and,
// where the configuration lets it, gives nodes the other role: the node drains, its requests go on
// elsewhere, and it comes back with a new incarnation (docs/pools.md). What to do is PoolPolicy's;
// this class brings it what happened and carries out what it says.
//
// Owner: the composition root. Thread: the control strand. Failure: a node that does not come back
// within a while is told in the log, and no longer waited for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/config/pools_section.h"
#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "gateway/cluster/membership.h"
#include "gateway/pools/gateway_share.h"
#include "gateway/pools/pool_policy.h"
#include "gateway/pools/waiting_prompts.h"

namespace baton::gateway {

struct PoolControllerOptions {
  PoolsSection pools;
  double ttft_s = 2;
  double itl_s = 0.2;
};

class PoolController {
 public:
  using AskWaiting = std::function<WaitingPrompts(const std::string& model)>;

  PoolController(Executor& executor,
                 Membership& membership,
                 const Logger& log,
                 Metrics& metrics,
                 PoolControllerOptions options,
                 AskWaiting waiting);
  PoolController(const PoolController&) = delete;
  PoolController& operator=(const PoolController&) = delete;
  ~PoolController() = default;

  // Looks at the load every interval from now on.
  void start();
  void stop() { timer_.cancel(); }
  // From the next look on; what was learned stays.
  void change_options(PoolControllerOptions options);

  void on_request(const std::string& model, std::size_t prompt_tokens);
  void on_ended(const std::string& model,
                std::uint32_t prompt_tokens,
                std::uint32_t cached_tokens,
                std::uint32_t output_tokens);

  // An array with one entry for each model that was looked at: what it has, what it should have.
  std::string to_json() const;

 private:
  // A node between two roles.
  struct Changing {
    NodeRole to = NodeRole::Prefill;
    Incarnation from{};
    TimePoint until;
  };
  struct Pools {
    explicit Pools(const PoolOptions& options) : policy(options) {}
    PoolPolicy policy;
    PoolObservation seen;  // of this interval so far
    GatewayShare share;
    std::map<NodeName, Changing> changing;
    PoolDecision decision;
    PoolSize there;
    bool was_looked_at = false;
    TimePoint last_seen;  // a node of the model
  };

  Pools& pools_of(const std::string& model);
  void look();
  void settle(Pools& pools);
  PoolObservation observe(const std::string& model, Pools& pools);
  // Nodes that take requests, now.
  PoolSize usable(const std::string& model) const;
  void carry_out(const std::string& model, Pools& pools);
  void export_sizes();

  Executor& executor_;
  Membership& membership_;
  const Logger& log_;
  PoolControllerOptions options_;
  PoolOptions policy_options_;
  const AskWaiting waiting_;
  std::array<Gauge, 2> desired_;  // by NodeRole
  std::array<Gauge, 2> there_;
  std::array<Counter, 2> changes_;
  std::map<std::string, Pools> pools_;  // by model
  TimePoint last_look_;
  TimerHandle timer_;
};

}  // namespace baton::gateway
