// Continuous batching: owns every sequence that runs on a decode node, plans a step from those that
// are there, lets new ones join and ended ones leave between steps, and reports each step's tokens.
//
// A sequence may have blocks for less than its whole answer; then it takes more as it grows. When
// there are none, the youngest sequence that may still need some goes back to its gateway
// (Preempted), so the oldest always gets on. One whose blocks suffice to its end is never
// preempted.
//
// With speculation a step also carries guesses of what sequences say next, where they are worth
// their time; the answers are the same. Guesses never make a sequence wait, nor lose its blocks.
//
// A sequence with a grammar is in no step until that is compiled; its masks are made beside the
// steps, and one whose mask is late sits steps out while the others go on.
//
// Owner: DecodeNode. Thread: control strand. Failure: none; requests are checked before, but for
// their grammars: one that does not compile ends its request with InvalidArgument.
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
#include "engine/speculation/drafter.h"
#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "engine/step/step_cost.h"
#include "engine/step/step_pace.h"
#include "node/client.h"
#include "node/grammars.h"
#include "node/prompt_scores.h"
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

  struct Options {
    engine::DecodeLimits limits;
    engine::DraftLimits drafts;
    NodeName node;
  };

  Scheduler(Executor& executor,
            node::StepEngine& steps,
            engine::KvMemory& kv,
            node::TokenStream& stream,
            Probe& probe,
            Options options,
            std::function<void()> on_ended,
            node::Grammars* grammars = nullptr);  // null: requests with a grammar are refused
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() = default;

  void add(Arrival arrival);
  // A request with this grammar will come.
  void expect(const Grammar& grammar);
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
  double step_seconds() const { return pace_.seconds(); }
  // Sequences that may be here: as many as the limits and the target of a step's time allow.
  std::uint32_t batch_limit() const;
  std::uint64_t num_steps() const { return steps_.num_steps(); }

 private:
  struct Running {
    std::uint64_t number = 0;
    node::ClientId client;
    std::unique_ptr<engine::Sequence> sequence;
    RequestFigures figures;
    node::PromptScores scores;  // of a prompt computed here
    TimePoint arrived;
    TimerHandle deadline;
    std::uint64_t last_turn = 0;
    bool awaits_grammar = false;
    bool awaits_mask = false;
    bool in_step = false;
    bool has_started = false;                  // was in a step
    bool is_over = false;                      // leaves when its step has ended; says nothing more
    std::optional<Error> hand_back;            // leaves so when its step has ended
    std::unique_ptr<engine::Drafter> drafter;  // null: no speculation
  };
  struct StepSlice {
    Running* running = nullptr;
    std::uint32_t count = 0;
  };
  struct Step {
    std::vector<StepSlice> slices;
    engine::StepShape shape;
    std::uint32_t drafts = 0;  // sent or asked for
  };

  void pump();
  void make_grammar(Running& running);
  void grammar_made(std::uint64_t number, Result<std::shared_ptr<engine::GrammarMask>> made);
  // Nothing was sampled for a slice that took all that was pending: the last of it comes again.
  void sit_out(Running& running, std::uint32_t count);
  // Gives every sequence the blocks its next token needs; hands back the youngest where the pool is
  // short of them. REQUIRES: no step in work.
  void grow();
  // Blocks that a sequence must have before its next step, and before its last.
  std::uint32_t blocks_now(const Running& running) const;
  bool may_grow(const Running& running) const;
  Running& running_of(const engine::Sequence& sequence);
  // Adds guesses to the slices that are worth it.
  void draft(std::vector<engine::PlannedSlice>& planned);
  // Drafts of a sequence that have blocks; takes one block more for them where plenty are free.
  std::uint32_t room_for_drafts(Running& running, std::uint32_t wanted);
  void step_done(Step step, node::StepEngine::Outcome outcome);
  // True when the sequence is over.
  bool apply(const StepSlice& slice,
             const std::vector<engine::SampledToken>& sampled,
             std::uint32_t drafted);
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
  const Options options_;
  const std::function<void()> on_ended_;
  node::Grammars* const grammars_;
  std::list<Running> running_;  // oldest first; addresses stay
  engine::StepPace pace_;
  engine::StepCost cost_;
  std::uint64_t num_added_ = 0;
  std::uint64_t num_turns_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by grammars on their way
};

}  // namespace baton::decode_node
