// Every request from admission to its one end: takes it from the queue when a pair can serve it,
// holds the prefill credit, gives it to the decode node, which hands it on to the prefill node,
// orders the tokens of both, and makes every end (finish, client gone, deadline, node lost) reach
// both nodes.
//
// While a request waits it holds nothing: on Busy the credit goes back at once. An attempt that
// fails in a way that another one may survive is repeated on other nodes, with the tokens accepted
// so far as its output: the client's stream goes on where it was. It waits for a pair as long as
// the queue allows; a new request waits for one only while lost nodes may be restarting.
//
// Three files: request_tracker.cpp (admission, dispatch, time), request_attempt.cpp (one attempt
// from Reserve to its tokens), request_ends.cpp (failover and every end).
//
// Owner: the composition root. Thread: the control strand. Failure: every request ends with exactly
// one on_end.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/types/request.h"
#include "gateway/cluster/membership.h"
#include "gateway/cluster/route_health.h"
#include "gateway/dashboard/ended_requests.h"
#include "gateway/pools/waiting_prompts.h"
#include "gateway/requests/admission.h"
#include "gateway/requests/answer_sink.h"
#include "gateway/requests/failover.h"
#include "gateway/requests/phase.h"
#include "gateway/requests/probe.h"
#include "gateway/requests/request_trace.h"
#include "gateway/requests/tracked_request.h"
#include "gateway/requests/ttft_prediction.h"
#include "gateway/routing/routing.h"

namespace baton::gateway {

struct TrackerOptions {
  std::size_t queue_limit = 256;  // of a tier that has none of its own
  std::chrono::milliseconds queue_timeout{60'000};
  std::array<TierSection, kNumTiers> tiers = GatewaySection().tiers;
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds figures_timeout{250};  // a stopped request's wait for figures
  std::chrono::milliseconds sweep{100};
  std::chrono::milliseconds avoid_for{2'000};      // a culprit, while there is another pair
  std::chrono::milliseconds restart_wait{15'000};  // after a loss, new requests wait for a pair
  FailoverLimits failover;
  RoutingOptions routing;
  std::function<void(const GenerateRequest&)> on_submitted;  // may be empty; refused ones, too
  std::function<void(EndedRequest)> on_ended;  // may be empty; without the wall-clock time
};

struct Submission {
  GenerateRequest request;  // id set, attempt and deadline not
  TimePoint received;
  std::shared_ptr<AnswerSink> sink;
  PromptChains chains;         // of the prompt; what is missing is made
  std::uint64_t affinity = 0;  // the same for requests of one session; 0: none
  Tier tier = Tier::Default;
  RequestTrace trace;
};

class RequestTracker {
 public:
  RequestTracker(Executor& executor,
                 Membership& membership,
                 RouteHealth& health,
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
  void on_kv_events(const Node& node, const wire::KvEvents& events);
  // May take the grant.
  void on_granted(Node& decode, wire::Granted& granted);

  // Queue limits and timeouts, tiers and the request timeout of `options` for requests from now on.
  void change_limits(const TrackerOptions& options);

  // Ends everything with `error`; later submissions are refused with it.
  void shut_down(const ApiError& error);

  std::size_t queued() const { return queue_.size(); }
  std::size_t active() const { return requests_.size(); }
  std::size_t queued(Tier tier) const { return queue_.size(tier); }
  std::size_t queue_limit() const { return options_.queue_limit; }
  // Of a model: requests in the queue and the tokens of their contexts.
  WaitingPrompts waiting(const std::string& model) const;
  // How far a request has come; nothing when it does not run (any more).
  std::optional<EndedRequest> describe(RequestId id) const;
  const Routing& routing() const { return routing_; }
  // Seconds until the queue has probably moved, for Retry-After.
  std::uint32_t retry_after_s() const;

 private:
  using Tracked = TrackedRequest;
  struct Failure {
    NodeHandle culprit{};
    FailoverReason reason = FailoverReason::Peer;
    Error error;
    bool at_work = true;          // the culprit had begun with the request
    bool is_of_the_pair = false;  // neither node alone is to blame
    bool lost_peer = false;       // the culprit is the other node's peer; or their link is at fault
  };

  // request_tracker.cpp
  // Gives waiting requests to pairs until none fits.
  void dispatch();
  void dispatch_model(const std::string& model);
  // The refusal of one whose first token cannot be expected by its tier's deadline.
  std::optional<ApiError> refuse_early(Tracked& tracked, Tier tier);
  // REQUIRES: it waits, and is too late.
  void refuse_late(Tracked& tracked);
  // Where it may go now; `out`, `resting`: as in RouteNeed.
  std::expected<Route, RouteMiss> route_for(Tracked& tracked,
                                            std::span<const NodeView> views,
                                            std::span<const NodePair> out,
                                            std::span<const NodePair> resting);
  std::vector<NodeView> views_of(const std::string& model) const;
  // A pair is missing: is it worth waiting for one?
  bool may_wait_for_pair(const Tracked& tracked) const;
  Tracked* find(RequestId id);
  void sweep();
  // The sweep ends it then.
  void set_due(Tracked& tracked, TimePoint due);
  void arm_sweep();
  void wake();

  // request_attempt.cpp
  void reserve(Tracked& tracked, const Route& route);
  void book_prefill(Tracked& tracked, Node& prefill);
  void book_sequence(Tracked& tracked, Node& decode);
  // The nodes have taken it, or nobody will say so any more. Only the first time counts.
  void taken(Tracked& tracked);
  // A node has not taken it: this attempt was none.
  void refused(Tracked& tracked, Node& node, const Error& error);
  // True while this node may send events of the request.
  static bool is_at_work(const Tracked& tracked, const Node& node);
  void on_event(Node& node, TokenEvent event);
  void prefill_served(const Tracked& tracked, const Node& prefill);
  void decode_begins(Tracked& tracked, const Node& decode);
  void deliver(Tracked& tracked, std::span<TokenEvent> ready);  // takes them
  void add_figures(Tracked& tracked, const Node& node, const RequestFigures& figures);
  // What the figures tell of the speed of nodes and links.
  void learn(const Tracked& tracked, const Node& node, const RequestFigures& figures);
  void give_back_credit(Tracked& tracked);
  void give_back_sequence(Tracked& tracked);
  // Its prompt has been computed, or will not be.
  void settle_blocks(Tracked& tracked, bool was_computed);

  // request_ends.cpp
  // Back to its old place in the queue.
  void wait_again(Tracked& tracked, const std::string& reason);
  // What a node's error means for the attempt: another one, or the end. `is_refusal`: it has not
  // begun, so that its peer has no part in it.
  void node_reports(Tracked& tracked,
                    const Node& node,
                    const Error& error,
                    bool is_refusal = false);
  // What the node itself has sent for it is against the rules: nobody else is to blame.
  void breaks_the_wire(Tracked& tracked, const Node& node, const Error& error);
  void attempt_failed(Tracked& tracked, Failure failure);
  // Tells the breakers what a node's error speaks against.
  void charge(const Tracked& tracked, const Node& node, const Error& error, bool is_refusal);
  void give_up(Tracked& tracked, ApiError error);
  void end(Tracked& tracked, Phase phase, FinishReason finish, std::optional<ApiError> error);
  // Ends it from outside of the nodes' doing; one that is Ending has all its text.
  void end_early(Tracked& tracked, const std::string& reason, ApiError error);
  void send_cancel(const Tracked& tracked, const std::string& reason);
  static void send_cancel_to(Node& node, RequestId id, Attempt attempt, const std::string& reason);
  void set_phase(Tracked& tracked, Phase phase);

  Executor& executor_;
  Membership& membership_;
  RouteHealth& health_;
  const Logger& log_;
  const Probe& probe_;
  TrackerOptions options_;
  AdmissionQueue queue_;
  std::map<std::string, TtftPrediction> predictions_;  // by model
  Routing routing_;
  std::unordered_map<RequestId, std::unique_ptr<Tracked>> requests_;
  std::set<std::pair<TimePoint, RequestId>> due_;  // of every request
  std::map<std::string, TimePoint> last_loss_;     // of a node, by model
  struct Full {
    WaitingOn who = WaitingOn::None;
    TimePoint seen;
  };
  std::map<std::string, Full> full_;  // when no pair had capacity, by model
  std::vector<TokenEvent> ready_;     // of one event; kept for its memory
  std::optional<ApiError> shut_down_;
  bool dispatch_posted_ = false;
  TimerHandle sweep_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted tasks
};

}  // namespace baton::gateway
