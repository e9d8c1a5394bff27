// Continuous batching: owns every sequence that runs on a decode node, plans a step from those that
// are there, lets new ones join and ended ones leave between steps, and reports each step's tokens.
//
// Owner: DecodeNode. Thread: control strand. Failure: none; requests are checked before.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "common/exec/executor.h"
#include "common/types/token_event.h"
#include "decode_node/probe.h"
#include "engine/kv/kv_memory.h"
#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "node/client.h"
#include "node/step_engine.h"
#include "node/token_stream.h"

namespace baton::decode_node {

class Scheduler {
 public:
  struct Arrival {
    node::ClientId client;
    std::unique_ptr<engine::Sequence> sequence;
    RequestFigures figures;              // what is known so far
    std::optional<TokenId> first_token;  // sampled elsewhere; its event was sent from there
  };

  Scheduler(Executor& executor,
            node::StepEngine& steps,
            engine::KvMemory& kv,
            node::TokenStream& stream,
            Probe& probe,
            engine::DecodeLimits limits,
            NodeName node,
            std::function<void()> on_ended);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() = default;

  void add(Arrival arrival);
  // The sequence leaves before the next step; no event follows. False: unknown.
  bool cancel(node::ClientId client, RequestId request, Attempt attempt);
  void cancel_client(node::ClientId client);
  // Every sequence ends with an error event.
  void end_all(const Error& why);

  std::uint32_t num_running() const { return static_cast<std::uint32_t>(running_.size()); }
  // Prompt tokens that wait to be prefilled here.
  std::uint32_t num_queued_tokens() const;
  double step_seconds() const { return step_seconds_; }  // smoothed
  std::uint64_t num_steps() const { return steps_.num_steps(); }

 private:
  struct Running {
    node::ClientId client;
    std::unique_ptr<engine::Sequence> sequence;
    RequestFigures figures;
    TimePoint arrived;
    bool in_step = false;
    bool has_started = false;  // was in a step
    bool is_cancelled = false;
  };
  struct StepSlice {
    Running* running = nullptr;
    std::uint32_t count = 0;
  };

  void pump();
  void step_done(const std::vector<StepSlice>& slices, node::StepEngine::Outcome outcome);
  // True when the sequence is over.
  bool apply(const StepSlice& slice,
             const std::optional<engine::SampledToken>& sampled,
             Duration duration);
  void report(Running& running, TokenEvent event, FinishReason finish);
  template <class Match>
  void drop_if(Match match);
  void ended();

  Executor& executor_;
  node::StepEngine& steps_;
  engine::KvMemory& kv_;
  node::TokenStream& stream_;
  Probe& probe_;
  const engine::DecodeLimits limits_;
  const NodeName node_;
  const std::function<void()> on_ended_;
  std::list<Running> running_;  // oldest first; addresses stay
  double step_seconds_ = 0;
};

}  // namespace baton::decode_node
