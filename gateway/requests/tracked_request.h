// One request as the tracker holds it from admission to its end: where it stands, what it has
// booked on which nodes, every token the gateway has accepted, and what earlier attempts left
// behind.
//
// Owner: RequestTracker. Thread: the control strand. Failure: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "common/types/request.h"
#include "gateway/requests/admission.h"
#include "gateway/requests/answer_sink.h"
#include "gateway/requests/failover.h"
#include "gateway/requests/phase.h"
#include "gateway/requests/probe.h"
#include "gateway/requests/request_trace.h"
#include "gateway/requests/token_order.h"
#include "gateway/requests/ttft_prediction.h"
#include "gateway/requests/waiting_on.h"
#include "gateway/routing/prompt_chain.h"
#include "gateway/routing/router.h"
#include "gateway/routing/sent_blocks.h"

namespace baton::gateway {

// A node (as nodes.prefill, whatever its role), or a pair, on which an attempt failed.
struct Avoided {
  NodePair nodes;
  TimePoint until;
  bool is_pair() const { return nodes.decode != NodeHandle{}; }
};

// A fault that may turn out to be the death of a node.
struct Blame {
  NodeHandle node{};
  bool at_work = false;  // it had begun with the request
};

struct TrackedRequest {
  // `output`: all tokens accepted so far, those whose text is held back included. An attempt
  // carries what there was when it began.
  GenerateRequest request;
  std::shared_ptr<AnswerSink> sink;
  PromptChains chains;         // of the prompt
  std::uint64_t affinity = 0;  // RouteNeed::affinity
  RequestTrace trace;
  const ModelProbe* probe = nullptr;  // of its model
  Phase phase = Phase::Queued;
  AdmissionQueue::Ticket ticket;
  std::optional<TtftPrediction::Answer> predicted;  // when its tier has a deadline
  // For its first token to be in time; max: it need not be, since no wait could be shorter.
  TimePoint latest_begin = TimePoint::max();
  TimePoint received;
  TimePoint deadline;
  TimePoint begun;        // this attempt: when it was given to nodes
  TimePoint due;          // when it is ended: the deadline, or earlier in Phase::Ending
  TimePoint first_token;  // of all attempts
  TimePoint last_token;   // a failover's gap is part of the time between tokens

  // Of this attempt.
  Route route;
  bool holds_credit = false;
  std::uint64_t tokens_booked = 0;  // with the credit: to be computed
  std::uint32_t context_booked = 0;
  std::uint64_t alone_as = 0;     // the node's credits_taken then, if it had no other; or 0
  SentBlocks::Ticket sent = 0;    // until the prompt is computed
  bool holds_sequence = false;    // counted in the decode node's sequences_given
  bool awaits_sign = false;       // neither node has said that it took it, or that it did not
  TtftPrediction::Begun counted;  // as work begun
  bool decode_has_begun = false;  // a token or end came from the decode node
  TokenOrder order;
  std::shared_ptr<const void> trial;  // of a part that is half-open; null: none is

  // Of all attempts.
  FailoverBudget budget;
  std::vector<Avoided> avoid;
  std::optional<Blame> blame;
  TimePoint rest_until;  // queued, but not to be given to nodes before
  TimerHandle rest;
  std::uint32_t preemptions = 0;
  std::uint64_t model_stamp = 0;  // of the first decode node: a resume stays within it; 0: none yet
  WaitingOn waiting_on = WaitingOn::None;
  bool has_prompt_figures = false;  // cached_tokens and the times to the first token are known
  AnswerFigures figures;

  std::chrono::microseconds since_received(TimePoint at) const {
    return std::chrono::duration_cast<std::chrono::microseconds>(at - received);
  }
  std::uint32_t num_output() const { return static_cast<std::uint32_t>(request.output.size()); }
  std::uint32_t num_context() const {
    return static_cast<std::uint32_t>(request.prompt.size() + request.output.size());
  }
  // This node of the attempt had something of the request in its hands that could harm it.
  bool has_begun_on(NodeHandle node) const {
    return phase == Phase::Decoding || phase == Phase::Ending ||
           (phase == Phase::Prefilling && (node == route.prefill || route.is_local()));
  }
  // REQUIRES: Queued. One that goes on at other nodes waits by its tier's timeout alone.
  bool is_too_late(TimePoint now) const {
    return latest_begin <= now && ticket.expires == latest_begin;
  }
  // Nodes have worked on it: it waits for a pair, where a new request would be refused.
  bool is_resumed() const { return budget.failovers() > 0 || figures.attempts > 0; }
};

}  // namespace baton::gateway
