// Continuous batching: owns every sequence that runs on a decode node, plans a step from those that
// are there, lets new ones join and ended ones leave between steps, and reports each step's tokens.
//
// A sequence may have blocks for less than its whole answer; then it takes more as it grows. When
// there are none, the youngest sequence that may still need some goes back to its gateway
// (Preempted), so the oldest always gets on. One whose blocks suffice to its end is never
// preempted.
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
    std::optional<TimePoint> deadline;   // absent: the request's own, from now
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
  // Every sequence goes back to its gateway by this error: those in a step when it has ended, with
  // its tokens.
  void hand_back(const Error& why);
  // Every sequence ends with an error event, now.
  void end_all(const Error& why);
  // A sequence that waits for blocks may find some.
  void blocks_freed() { pump(); }

  std::uint32_t num_running() const { return static_cast<std::uint32_t>(running_.size()); }
  // Sequences whose blocks may not suffice to their end.
  std::uint32_t num_growing() const;
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
    TimerHandle deadline;
    bool in_step = false;
    bool has_started = false;        // was in a step
    bool is_over = false;            // leaves when its step has ended; says nothing more
    std::optional<Error> hand_back;  // leaves so when its step has ended
  };
  struct StepSlice {
    Running* running = nullptr;
    std::uint32_t count = 0;
  };

  void pump();
  // Gives every sequence the blocks its next token needs; hands back the youngest where the pool is
  // short of them. REQUIRES: no step in work.
  void grow();
  // Blocks that a sequence must have before its next step, and before its last.
  std::uint32_t blocks_now(const Running& running) const;
  bool may_grow(const Running& running) const;
  void step_done(const std::vector<StepSlice>& slices, node::StepEngine::Outcome outcome);
  // True when the sequence is over.
  bool apply(const StepSlice& slice,
             const std::optional<engine::SampledToken>& sampled,
             Duration duration);
  void report(Running& running, TokenEvent event, FinishReason finish);
  // The sequences leave without an event; in a step, when it has ended, whatever it brings.
  template <class Match>
  void drop_if(Match match);
  // They leave by an error event; in a step, when it has ended, after its tokens.
  template <class Match>
  void hand_back_if(Match match, const Error& why);
  void tell(const Running& running, const Error& why);
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
