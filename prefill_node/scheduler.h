// Owns every request on a prefill node: gives it blocks, computes its prompt in chunks packed with
// others', the most urgent first, sends the first token to its gateway, and keeps its blocks until
// the decode node has them or nothing reads them any more.
//
//   Waiting (no blocks) -> [Restoring (a prefix from the file tier) or Pulling (from decode) ->]
//        Computing -> Delivering (flush, Commit) -> gone; any of them -> Ending (abort until
//        quiet) -> gone
//
// Owner: PrefillNode. Thread: control strand; only the step and its LayerSends run on the engine
// thread. Failure: a job that fails ends with an error event to its gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "common/types/kv_grant.h"
#include "common/types/token_event.h"
#include "engine/kv/file_tier.h"
#include "engine/kv/kv_memory.h"
#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "node/client.h"
#include "node/grammars.h"
#include "node/prompt_scores.h"
#include "node/step_engine.h"
#include "node/token_stream.h"
#include "prefill_node/kv_sender.h"
#include "prefill_node/probe.h"
#include "prefill_node/pulls.h"

namespace baton::prefill_node {

class Scheduler {
 public:
  struct Parts {
    Executor& executor;
    node::StepEngine& steps;
    engine::KvMemory& kv;
    transfer::Transport& transport;
    DecodeLinks& links;
    Pulls& pulls;
    node::TokenStream& stream;
    Probe& probe;
    const Logger& log;
    NodeName node;
    transfer::DigestMode digest = transfer::DigestMode::Off;
    engine::FileTier* tier = nullptr;    // null: there is none
    std::function<void()> on_ended;      // a job is gone
    node::Grammars* grammars = nullptr;  // null: jobs with a grammar end with an error
  };

  Scheduler(Parts parts, engine::PrefillLimits limits);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() = default;

  // `is_bound`: the decode node has bound the grant to its connection. REQUIRES: the context fits
  // the pool.
  void add(node::ClientId client,
           GenerateRequest request,
           const engine::RequestSize& size,
           KvGrant grant,
           bool is_bound);
  // No event follows, and no further chunk is computed. False: unknown, or already over.
  bool cancel(node::ClientId client, RequestId request, Attempt attempt);
  void cancel_client(node::ClientId client);
  // Every request goes back to its gateway by this error, at once.
  void end_all(const Error& why);
  // Blocks have come free elsewhere: looks again at who waits for some.
  void blocks_freed() { pump(); }

  // Requests of a gateway whose first token is not sampled yet: they hold its credits.
  std::uint32_t num_uncomputed(node::ClientId client) const;
  std::uint32_t num_queued_tokens() const;
  std::size_t num_jobs() const { return jobs_.size(); }
  std::size_t num_waiting() const;
  double tokens_per_second() const { return tokens_per_second_; }  // smoothed
  std::uint64_t num_steps() const { return parts_.steps.num_steps(); }

 private:
  enum class JobState : std::uint8_t { Waiting, Restoring, Pulling, Computing, Delivering, Ending };
  struct Job {
    std::uint64_t number = 0;
    JobState state = JobState::Waiting;
    node::ClientId client;
    GenerateRequest request;  // moved into the sequence when that is made
    RequestId id{};
    Attempt attempt{};
    std::uint32_t choice = 0;
    engine::RequestSize size;
    // While a prefix is restored or pulled: what the index held, and the blocks behind its own.
    engine::TierLoadId load{};
    bool has_looked = false;  // into the file tier, once
    PullId pull{};
    bool has_pulled = false;  // once, with or without success
    engine::PrefixRef prefix;
    std::vector<engine::BlockLease> rest;
    std::unique_ptr<engine::Sequence> sequence;  // null until the job computes
    bool awaits_grammar = false;                 // waits until it is compiled
    std::shared_ptr<engine::GrammarMask> grammar;
    std::unique_ptr<KvSender> sender;
    node::PromptScores scores;
    RequestFigures figures;
    TimePoint arrived;
    TimePoint due{};
    TimerHandle deadline;
    bool in_step = false;
    std::optional<std::string> end_reason;  // ends when its step has ended
  };
  struct StepSlice {
    Job* job = nullptr;
    std::uint32_t count = 0;
  };

  void pump();
  void make_grammar(Job& job);
  void grammar_made(std::uint64_t number, Result<std::shared_ptr<engine::GrammarMask>>&& made);
  bool admit(Job& job);
  // The same prompt is being computed: this one will find it in the cache.
  bool should_wait_for_twin(const Job& job) const;
  // Fetches `count` blocks, the first of `own`, from the decode node.
  void pull(Job& job,
            engine::PrefixRef prefix,
            std::vector<engine::BlockLease> own,
            std::uint32_t count);
  void pulled(std::uint64_t number, Result<Pulls::Pulled> result);
  // The same from the file tier; false: it holds nothing of use, and nothing was taken.
  bool restore(Job& job, engine::PrefixRef& prefix, std::vector<engine::BlockLease>& own);
  void restored(std::uint64_t number, engine::FileTier::Loaded loaded);
  // What the job held back goes on behind `count` blocks that have come.
  void go_on(Job& job, std::vector<engine::BlockLease> blocks, std::uint32_t count);
  void try_again(Job& job);
  // The first `computed` tokens are in the blocks.
  void begin(Job& job,
             engine::PrefixRef prefix,
             std::vector<engine::BlockLease> own,
             std::uint32_t computed);
  void run_step(const std::vector<engine::PlannedSlice>& planned);
  void step_done(const std::vector<StepSlice>& slices, node::StepEngine::Outcome outcome);
  // The end of the step for one of its slices, number `i`.
  void apply(const StepSlice& slice, engine::StepResult& result, std::size_t i);
  void first_token(Job& job, const engine::SampledToken& sampled, FinishReason finish);
  void committed(std::uint64_t number, std::uint64_t bytes);
  void failed(std::uint64_t number, const Error& why);
  // Aborts the transfer now, or after the step the job is in.
  void end(Job& job, const std::string& reason);
  void remove(std::uint64_t number);
  Job* find(std::uint64_t number);
  static CancelPhase phase_of(const Job& job);
  template <class Match>
  bool end_if(Match match, const std::string& reason, const Error* tell);

  const Parts parts_;
  const engine::PrefillLimits limits_;
  std::list<Job> jobs_;  // oldest first; addresses stay
  std::uint64_t next_number_ = 1;
  double tokens_per_second_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::prefill_node
