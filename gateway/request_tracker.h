// Every request from admission to its one end: takes it from the queue when a pair can serve it,
// holds the prefill credit, asks the decode node for a grant, starts the prefill node, orders the
// tokens of both, and makes every end (finish, client gone, deadline, node lost) reach both nodes.
//
// While a request waits it holds nothing: on Busy the credit goes back at once. An attempt that
// fails before the client has seen anything is repeated once on other nodes; a second failure ends
// the request, since it may be the cause.
//
// Owner: the composition root. Thread: the control strand. Failure: every request ends with exactly
// one on_end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/types/request.h"
#include "gateway/admission.h"
#include "gateway/answer_sink.h"
#include "gateway/membership.h"
#include "gateway/phase.h"
#include "gateway/probe.h"
#include "gateway/token_order.h"

namespace baton::gateway {

struct TrackerOptions {
  std::size_t queue_limit = 256;
  std::chrono::milliseconds queue_timeout{60'000};
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds call_timeout{5'000};   // Reserve, Prefill: to their answers
  std::chrono::milliseconds figures_timeout{250};  // a stopped request's wait for figures
  std::chrono::milliseconds sweep{100};
  std::uint32_t max_failures = 2;  // of attempts, then the request ends
};

struct Submission {
  GenerateRequest request;  // id set, attempt and deadline not
  TimePoint received;
  std::shared_ptr<AnswerSink> sink;
};

class RequestTracker {
 public:
  RequestTracker(Executor& executor,
                 Membership& membership,
                 const Logger& log,
                 const Probe& probe,
                 TrackerOptions options);
  RequestTracker(const RequestTracker&) = delete;
  RequestTracker& operator=(const RequestTracker&) = delete;
  ~RequestTracker();

  void submit(Submission submission);
  // The client has left: nothing more goes to the sink.
  void cancel(RequestId id, const std::string& reason);
  // The answer is complete although the nodes would go on (a stop string). With `want_figures` the
  // end waits a moment for what the nodes have measured.
  void stop(RequestId id, bool want_figures);

  // From membership.
  void on_node_changed(Node& node);
  void on_node_down(Node& node, const Error& why);
  void on_tokens(Node& node, const wire::TokenFrame& frame);

  // Ends everything with `error`; later submissions are refused with it.
  void shut_down(const ApiError& error);

  std::size_t queued() const { return queue_.size(); }
  std::size_t active() const { return requests_.size(); }
  std::size_t queue_limit() const { return queue_.limit(); }
  // Seconds until the queue has probably moved, for Retry-After.
  std::uint32_t retry_after_s() const;

 private:
  struct Tracked {
    GenerateRequest request;
    std::shared_ptr<AnswerSink> sink;
    Phase phase = Phase::Queued;
    AdmissionQueue::Ticket ticket;
    TimePoint received;
    TimePoint deadline;
    TimePoint granted;
    TimePoint ending_until;  // in Phase::Ending
    Route route;
    bool holds_credit = false;
    bool holds_sequence = false;    // counted in the decode node's sequences_given
    bool decode_has_begun = false;  // a token or end came from the decode node
    std::uint32_t failures = 0;
    std::vector<NodeHandle> avoid;
    TokenOrder order;
    AnswerFigures figures;
    TimePoint last_token;
  };

  void enqueue(Tracked& tracked);
  // Gives waiting requests to pairs until none fits.
  void dispatch();
  void dispatch_model(const std::string& model);
  void reserve(Tracked& tracked, const Route& route);
  void on_reserved(RequestId id, Attempt attempt, NodeHandle decode, Result<wire::Frame> answer);
  void prefill(Tracked& tracked, const wire::KvGrant& grant);
  void on_prefill_answer(RequestId id,
                         Attempt attempt,
                         NodeHandle prefill,
                         Result<wire::Frame> answer);
  // True while this node may send events of the request.
  static bool is_at_work(const Tracked& tracked, const Node& node);
  void on_event(Node& node, TokenEvent event);
  void deliver(Tracked& tracked, std::vector<TokenEvent> ready);
  void add_figures(Tracked& tracked, const Node& node, const RequestFigures& figures);

  void wait_again(Tracked& tracked, const std::string& reason);
  void attempt_failed(Tracked& tracked, NodeHandle culprit, const Error& error);
  void end(Tracked& tracked, Phase phase, FinishReason finish, std::optional<ApiError> error);
  void send_cancel(const Tracked& tracked, const std::string& reason);
  void give_back_credit(Tracked& tracked);
  void give_back_sequence(Tracked& tracked);
  void set_phase(Tracked& tracked, Phase phase);
  Tracked* find(RequestId id);
  void sweep();
  void arm_sweep();
  void wake();

  Executor& executor_;
  Membership& membership_;
  const Logger& log_;
  const Probe& probe_;
  const TrackerOptions options_;
  AdmissionQueue queue_;
  std::unordered_map<RequestId, std::unique_ptr<Tracked>> requests_;
  std::optional<ApiError> shut_down_;
  bool dispatch_posted_ = false;
  TimerHandle sweep_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted tasks and open calls
};

}  // namespace baton::gateway
