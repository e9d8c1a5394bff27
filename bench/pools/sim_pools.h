// A cluster as the comparison of pool policies sees it: one queue, prefill nodes that compute one
// prompt at a time, decode nodes whose steps grow with sequences and with the tokens they look at,
// nodes that change their role or come and go. Its times are its own: attention grows with the
// square of a prompt, nodes differ, and every prompt and step has noise, none of which the policy's
// predictor knows.
//
// Changing a role: the node takes nothing new; what a decode node has not finished at the limit
// goes back to the queue's front and is computed again with its answer so far; then the node starts
// anew. A copy of this class is a branch of the same future.
//
// Thread: one; virtual time in seconds. Failure: none.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "bench/pools/load.h"
#include "bench/route/noise.h"
#include "gateway/pools/pool_types.h"

namespace baton::bench {

struct SimPoolOptions {
  std::uint32_t nodes = 12;
  double ttft_s = 4;
  double itl_s = 0.055;  // mean of an answer
  double drain_s = 10;   // limit before sequences are handed back
  double restart_s = 5;  // from drained to ready in the other role
  double start_s = 90;   // of a node that was not there
  std::uint64_t seed = 1;
};

class SimPools {
 public:
  SimPools(const SimPoolOptions& options, gateway::PoolSize roles);

  // Runs to `until`, taking arrivals from `trace`, which must be the same at every call.
  void run(std::span<const PoolRequest> trace, double until);
  // Everything that has arrived ends; nothing else comes.
  void finish(std::span<const PoolRequest> trace);

  // What a gateway would know, since the last call.
  gateway::PoolObservation observe();
  // Each drains and starts anew with the other role.
  void change(std::span<const gateway::NodeHandle> nodes);
  // At no cost: nothing drains, no sequence is disturbed. For an oracle.
  void change_at_once(gateway::PoolSize roles);
  // Starts or drains nodes until each role has (or will have) so many.
  void scale(gateway::PoolSize roles);

  gateway::PoolSize usable() const;
  std::uint64_t good() const { return good_; }  // requests that kept both targets
  std::uint64_t ended() const { return ended_; }
  // Requests that have missed a target, or are bound to.
  std::uint64_t bad(double now) const;
  double node_seconds() const { return node_seconds_; }
  double now() const { return now_; }

 private:
  struct Job {
    double at_s = 0;
    double first_token_s = -1;
    std::uint32_t context = 0;  // tokens to compute
    std::uint32_t done = 0;     // of the answer
    std::uint32_t output = 0;
    std::uint32_t input = 0;
  };
  struct Sequence {
    Job job;
    double begun_v = 0;  // the node's tokens per sequence then
    double ends_v = 0;
  };
  enum class State { Serving, Draining, Starting, Gone };
  struct Node {
    gateway::NodeRole role = gateway::NodeRole::Prefill;
    State state = State::Serving;
    gateway::NodeRole next_role = gateway::NodeRole::Prefill;
    bool leaves = false;  // for good, once drained
    double state_until = 0;
    double slowness = 1;
    double next_s = 0;  // of its next event
    // Prefill.
    bool is_computing = false;
    Job job;
    std::size_t job_decode = 0;
    double job_ends_s = 0;
    double tokens_per_s = 0;  // as it reports
    // Decode.
    std::vector<Sequence> batch;
    std::uint32_t promised = 0;  // sequences whose prompts are being computed
    double tokens_v = 0;         // made for each sequence that was there all the time
    double context = 0;          // tokens that a step looks at
    double step_s = 0;
    double since_s = 0;
    double reported_step_s = 0;
  };

  void arrive(const PoolRequest& request);
  void dispatch();
  void begin(std::size_t prefill, std::size_t decode, Job job);
  void handle(std::size_t index);
  void end_prompt(Node& node);
  void join(std::size_t decode, const Job& job);
  void advance(Node& node);
  void retime(Node& node);
  void end_sequences(Node& node);
  void end(const Job& job);
  void begin_drain(Node& node, gateway::NodeRole next, bool leaves);
  static Job interrupted(const Node& node, const Sequence& sequence);
  void hand_back(Node& node);
  void give_role(Node& node, gateway::NodeRole role);
  std::size_t least_busy(gateway::NodeRole role) const;
  void check_drained(Node& node);
  bool is_decode_open(const Node& node) const;
  std::size_t best_decode() const;

  SimPoolOptions options_;
  Noise noise_;
  double now_ = 0;
  std::size_t next_arrival_ = 0;
  std::deque<Job> queue_;
  std::vector<Node> nodes_;
  std::uint64_t good_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t late_ = 0;  // begun, but later than the target
  double node_seconds_ = 0;
  gateway::PoolObservation seen_;
  double seen_s_ = 0;
};

}  // namespace baton::bench
