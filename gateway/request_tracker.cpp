// Invariants: a request is in the queue exactly while it is Queued; it holds a credit only from
// reserve() to the first token of its prefill node or its end; each Reserve has an attempt number
// of its own, so that whatever an earlier one still sends is dropped.
#include "gateway/request_tracker.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/wire/convert.h"

namespace baton::gateway {
namespace {

ApiError no_pair_error() {
  return to_api_error(Error{ErrorCode::Unavailable,
                            "No pair of prefill and decode nodes can serve this model now."});
}

void send_cancel_to(Node& node, RequestId id, Attempt attempt, const std::string& reason) {
  wire::Frame frame;
  wire::Cancel& body = *frame.mutable_cancel();
  body.set_request(id.value);
  body.set_attempt(attempt.value);
  body.set_reason(reason);
  node.channel->send(std::move(frame));
}

std::chrono::microseconds elapsed(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::microseconds>(to - from);
}

}  // namespace

RequestTracker::RequestTracker(Executor& executor,
                               Membership& membership,
                               const Logger& log,
                               const Probe& probe,
                               TrackerOptions options)
    : executor_(executor),
      membership_(membership),
      log_(log),
      probe_(probe),
      options_(options),
      queue_(options.queue_limit) {
  arm_sweep();
}

RequestTracker::~RequestTracker() = default;

// ---- admission and dispatch

void RequestTracker::submit(Submission submission) {
  auto tracked = std::make_unique<Tracked>();
  tracked->request = std::move(submission.request);
  tracked->sink = std::move(submission.sink);
  tracked->received = submission.received;
  tracked->last_token = submission.received;
  tracked->deadline = submission.received + options_.request_timeout;
  const auto refuse = [&](ApiError error) {
    probe_.refused.add();
    tracked->sink->on_end(AnswerEnd{FinishReason::Error, std::move(error), {}});
  };
  if (shut_down_) {
    return refuse(*shut_down_);
  }
  if (requests_.contains(tracked->request.id)) {
    return refuse(to_api_error(Error{ErrorCode::Internal, "a request id came twice"}));
  }
  const auto ticket = queue_.enter(
      tracked->request.model, tracked->request.id, executor_.now() + options_.queue_timeout);
  if (!ticket) {
    ApiError error = to_api_error(Error{
        ErrorCode::Busy,
        fmt::format("The server has {} requests waiting and takes no more now. Try again later.",
                    queue_.size())});
    error.retry_after_s = retry_after_s();
    return refuse(std::move(error));
  }
  tracked->ticket = *ticket;
  const std::string model = tracked->request.model;
  requests_.emplace(tracked->request.id, std::move(tracked));
  dispatch_model(model);
}

std::uint32_t RequestTracker::retry_after_s() const {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(queue_.size() / 32, 1, 30));
}

void RequestTracker::dispatch() {
  for (const std::string& model : queue_.models()) {
    dispatch_model(model);
  }
}

void RequestTracker::dispatch_model(const std::string& model) {
  while (const auto id = queue_.head(model)) {
    Tracked& tracked = *find(*id);
    RouteNeed need;
    need.prompt_tokens = static_cast<std::uint32_t>(tracked.request.prompt.size());
    need.total_tokens = need.prompt_tokens + tracked.request.max_tokens;
    need.avoid = tracked.avoid;
    const auto route = choose_route(membership_.views_of(model), need);
    if (route) {
      reserve(tracked, *route);
    } else if (route.error() == RouteMiss::NoPair) {
      queue_.leave(model, tracked.ticket);
      end(tracked, Phase::Failed, FinishReason::Error, no_pair_error());
    } else {
      return;  // the oldest waits, and nobody overtakes it
    }
  }
}

void RequestTracker::reserve(Tracked& tracked, const Route& route) {
  queue_.leave(tracked.request.model, tracked.ticket);
  set_phase(tracked, Phase::Reserving);
  tracked.route = route;
  tracked.decode_has_begun = false;
  tracked.order.restart();
  Node* decode = membership_.find(route.decode);
  BATON_CHECK(decode != nullptr, "the router chose a node that is not there");
  if (!route.is_local()) {
    Node* prefill = membership_.find(route.prefill);
    BATON_CHECK(prefill != nullptr, "the router chose a node that is not there");
    ++prefill->credits_used;
    prefill->tokens_given += tracked.request.prompt.size();
    tracked.holds_credit = true;
  }
  ++decode->open_reserves;
  tracked.figures.decode_node = decode->name;
  tracked.figures.prefill_node =
      route.is_local() ? decode->name : membership_.find(route.prefill)->name;
  tracked.request.deadline = std::max(
      std::chrono::milliseconds(1),
      std::chrono::duration_cast<std::chrono::milliseconds>(tracked.deadline - executor_.now()));
  wire::Frame frame;
  wire::Reserve& body = *frame.mutable_reserve();
  *body.mutable_request() = to_wire(tracked.request);
  body.set_local(route.is_local());
  decode->channel->call(std::move(frame),
                        options_.call_timeout,
                        [this,
                         alive = std::weak_ptr(alive_),
                         id = tracked.request.id,
                         attempt = tracked.request.attempt,
                         handle = route.decode](Result<wire::Frame> answer) {
                          if (!alive.expired()) {
                            on_reserved(id, attempt, handle, std::move(answer));
                          }
                        });
}

void RequestTracker::on_reserved(RequestId id,
                                 Attempt attempt,
                                 NodeHandle decode,
                                 Result<wire::Frame> answer) {
  if (Node* node = membership_.find(decode)) {
    --node->open_reserves;
    if (!answer &&
        (answer.error().code == ErrorCode::Busy || answer.error().code == ErrorCode::NoBlocks)) {
      node->busy = true;
      probe_.reserve_busy.add();
    }
  }
  Tracked* tracked = find(id);
  if (tracked == nullptr || tracked->request.attempt != attempt ||
      tracked->phase != Phase::Reserving) {
    // Ended meanwhile. The Cancel may have overtaken the Reserve inside the node.
    if (Node* node = membership_.find(decode); node != nullptr && answer && answer->has_granted()) {
      send_cancel_to(*node, id, attempt, "no longer wanted");
    }
    return wake();
  }
  if (!answer) {
    const Error& error = answer.error();
    if (error.code == ErrorCode::Busy || error.code == ErrorCode::NoBlocks) {
      return wait_again(*tracked, "");
    }
    return attempt_failed(*tracked, decode, error);
  }
  if (!answer->has_granted()) {
    return attempt_failed(
        *tracked, decode, Error{ErrorCode::ProtocolError, "Reserve was not answered by a grant"});
  }
  Node* node = membership_.find(decode);
  BATON_CHECK(node != nullptr, "an answer of a node that is not there");
  ++node->sequences_given;
  tracked->holds_sequence = true;
  ++tracked->figures.attempts;
  tracked->granted = executor_.now();
  tracked->figures.queue = elapsed(tracked->received, tracked->granted);
  probe_.queue_time.observe(std::chrono::duration<double>(tracked->figures.queue).count());
  set_phase(*tracked, Phase::Prefilling);
  if (!tracked->route.is_local()) {
    prefill(*tracked, answer->granted().grant());
  }
  wake();
}

void RequestTracker::prefill(Tracked& tracked, const wire::KvGrant& grant) {
  Node* node = membership_.find(tracked.route.prefill);
  BATON_CHECK(node != nullptr, "a request whose prefill node is gone has been ended");
  wire::Frame frame;
  wire::Prefill& body = *frame.mutable_prefill();
  *body.mutable_request() = to_wire(tracked.request);
  *body.mutable_grant() = grant;
  node->channel->call(std::move(frame),
                      options_.call_timeout,
                      [this,
                       alive = std::weak_ptr(alive_),
                       id = tracked.request.id,
                       attempt = tracked.request.attempt,
                       handle = tracked.route.prefill](Result<wire::Frame> answer) {
                        if (!alive.expired()) {
                          on_prefill_answer(id, attempt, handle, std::move(answer));
                        }
                      });
}

void RequestTracker::on_prefill_answer(RequestId id,
                                       Attempt attempt,
                                       NodeHandle prefill,
                                       Result<wire::Frame> answer) {
  Tracked* tracked = find(id);
  if (answer || tracked == nullptr || tracked->request.attempt != attempt ||
      tracked->phase != Phase::Prefilling) {
    return;
  }
  if (answer.error().code == ErrorCode::Busy) {
    if (Node* node = membership_.find(prefill)) {
      node->busy = true;
    }
    return wait_again(*tracked, "prefill node busy");
  }
  attempt_failed(*tracked, prefill, answer.error());
}

// ---- tokens

void RequestTracker::on_tokens(Node& node, const wire::TokenFrame& frame) {
  for (const wire::TokenEvent& message : frame.events()) {
    auto event = from_wire(message);
    if (!event) {
      probe_.bad_events.add();
      log_.warn("node '{}' sent a broken token event: {}", node.name, event.error().message);
      Tracked* tracked = find(RequestId{message.request()});
      if (tracked != nullptr && is_at_work(*tracked, node)) {
        attempt_failed(*tracked, node.handle, event.error());
      }
      continue;
    }
    on_event(node, std::move(*event));
  }
  wake();
}

bool RequestTracker::is_at_work(const Tracked& tracked, const Node& node) {
  const bool granted = tracked.phase == Phase::Prefilling || tracked.phase == Phase::Decoding ||
                       tracked.phase == Phase::Ending;
  return granted && (node.handle == tracked.route.decode || node.handle == tracked.route.prefill);
}

void RequestTracker::on_event(Node& node, TokenEvent event) {
  Tracked* tracked = find(event.request);
  if (tracked == nullptr || event.attempt != tracked->request.attempt ||
      !is_at_work(*tracked, node)) {
    probe_.stale_events.add();
    return;
  }
  const bool from_decode = node.handle == tracked->route.decode;
  const bool from_prefill = node.handle == tracked->route.prefill;
  if (event.figures) {
    add_figures(*tracked, node, *event.figures);
  }
  if (tracked->phase == Phase::Ending) {
    if (event.finish != FinishReason::None && from_decode) {
      end(*tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    }
    return;
  }
  if (event.finish == FinishReason::Error || event.finish == FinishReason::Cancelled) {
    const Error error = event.error.value_or(
        Error{event.finish == FinishReason::Cancelled ? ErrorCode::PeerDead : ErrorCode::Internal,
              "the node ended the request"});
    return attempt_failed(*tracked, node.handle, error);
  }
  tracked->decode_has_begun |= from_decode && !event.tokens.empty();
  if (from_prefill && (!event.tokens.empty() || event.finish != FinishReason::None)) {
    give_back_credit(*tracked);
  }
  std::vector<TokenEvent> ready;
  const auto repeats = tracked->order.dropped();
  if (const auto pushed = tracked->order.push(std::move(event), ready); !pushed) {
    return attempt_failed(*tracked, node.handle, pushed.error());
  }
  if (tracked->order.dropped() != repeats) {
    probe_.stale_events.add();
  }
  if (!ready.empty()) {
    deliver(*tracked, std::move(ready));
  }
}

void RequestTracker::deliver(Tracked& tracked, std::vector<TokenEvent> ready) {
  const TimePoint now = executor_.now();
  if (tracked.phase == Phase::Prefilling && !ready.front().tokens.empty()) {
    set_phase(tracked, Phase::Decoding);
  }
  FinishReason finish = FinishReason::None;
  for (TokenEvent& event : ready) {
    const auto count = event.tokens.size();
    if (count > 0) {
      const double seconds = std::chrono::duration<double>(now - tracked.last_token).count();
      if (event.index == 0) {
        probe_.ttft.observe(seconds);
      } else {
        probe_.itl.observe(seconds);
      }
      probe_.generated_tokens.add(static_cast<double>(count));
      tracked.last_token = now;
    }
    finish = event.finish;
    tracked.sink->on_tokens(std::move(event));
  }
  if (finish != FinishReason::None) {
    end(tracked, Phase::Finished, finish, std::nullopt);
  }
}

void RequestTracker::add_figures(Tracked& tracked,
                                 const Node& node,
                                 const RequestFigures& figures) {
  AnswerFigures& all = tracked.figures;
  const bool computes = node.handle == tracked.route.prefill || tracked.route.is_local();
  if (computes) {
    all.cached_tokens = figures.cached_tokens;
    all.prefill = std::chrono::microseconds(figures.compute_us);
    all.chunks = figures.chunks;
    all.queue =
        elapsed(tracked.received, tracked.granted) + std::chrono::microseconds(figures.queue_us);
  }
  if (node.handle == tracked.route.decode) {
    all.kv_bytes_moved = figures.kv_bytes_moved;
    all.prefix_blocks_held = figures.prefix_blocks_held;
    if (!figures.kv_transport.empty()) {
      all.kv_transport = figures.kv_transport;
    }
  }
  all.transfer = std::max(all.transfer, std::chrono::microseconds(figures.transfer_us));
  all.max_batch = std::max(all.max_batch, figures.max_batch);
}

// ---- ends

void RequestTracker::cancel(RequestId id, const std::string& reason) {
  if (Tracked* tracked = find(id)) {
    probe_.disconnects.add();
    send_cancel(*tracked, reason);
    if (tracked->phase == Phase::Queued) {
      queue_.leave(tracked->request.model, tracked->ticket);
    }
    end(*tracked, Phase::Cancelled, FinishReason::Cancelled, std::nullopt);
    wake();
  }
}

void RequestTracker::stop(RequestId id, bool want_figures) {
  Tracked* tracked = find(id);
  if (tracked == nullptr || tracked->phase != Phase::Decoding) {
    return;
  }
  send_cancel(*tracked, "stop string");
  if (!want_figures) {
    end(*tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    return wake();
  }
  set_phase(*tracked, Phase::Ending);
  tracked->ending_until = executor_.now() + options_.figures_timeout;
}

// Another place in the same order: nothing was lost but the grant.
void RequestTracker::wait_again(Tracked& tracked, const std::string& reason) {
  if (!reason.empty()) {
    send_cancel(tracked, reason);
  }
  give_back_credit(tracked);
  give_back_sequence(tracked);
  set_phase(tracked, Phase::Queued);
  tracked.request.attempt = Attempt{tracked.request.attempt.value + 1};
  queue_.reenter(tracked.request.model, tracked.request.id, tracked.ticket);
  wake();
}

void RequestTracker::attempt_failed(Tracked& tracked, NodeHandle culprit, const Error& error) {
  log_.warn("request {:016x} attempt {} failed while {}: {}: {}",
            tracked.request.id.value,
            tracked.request.attempt.value,
            to_string(tracked.phase),
            to_string(error.code),
            error.message);
  probe_.failed_attempts.add();
  send_cancel(tracked, "attempt failed");
  if (tracked.phase == Phase::Ending) {
    end(tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    return wake();
  }
  ++tracked.failures;
  tracked.avoid.push_back(culprit);
  const bool again = is_retryable(error.code) && tracked.failures < options_.max_failures &&
                     tracked.sink->is_unsent();
  if (again) {
    RouteNeed need;
    need.prompt_tokens = static_cast<std::uint32_t>(tracked.request.prompt.size());
    need.total_tokens = need.prompt_tokens + tracked.request.max_tokens;
    need.avoid = tracked.avoid;
    const auto route = choose_route(membership_.views_of(tracked.request.model), need);
    if (route || route.error() == RouteMiss::NoCapacity) {
      return wait_again(tracked, "");
    }
  }
  end(tracked, Phase::Failed, FinishReason::Error, to_api_error(error));
  wake();
}

void RequestTracker::end(Tracked& tracked,
                         Phase phase,
                         FinishReason finish,
                         std::optional<ApiError> error) {
  give_back_credit(tracked);
  give_back_sequence(tracked);
  set_phase(tracked, phase);
  const double seconds = std::chrono::duration<double>(executor_.now() - tracked.received).count();
  probe_.ended(phase, seconds, tracked.request.prompt.size());
  const auto node = requests_.extract(tracked.request.id);  // `tracked` lives until the return
  if (phase != Phase::Cancelled) {
    tracked.sink->on_end(AnswerEnd{finish, std::move(error), std::move(tracked.figures)});
  }
}

void RequestTracker::send_cancel(const Tracked& tracked, const std::string& reason) {
  if (tracked.phase == Phase::Queued) {
    return;
  }
  for (const NodeHandle handle : {tracked.route.prefill, tracked.route.decode}) {
    if (Node* node = membership_.find(handle)) {
      send_cancel_to(*node, tracked.request.id, tracked.request.attempt, reason);
    }
  }
}

void RequestTracker::give_back_credit(Tracked& tracked) {
  if (!std::exchange(tracked.holds_credit, false)) {
    return;
  }
  if (Node* node = membership_.find(tracked.route.prefill)) {
    --node->credits_used;
    node->tokens_given -= tracked.request.prompt.size();
    node->busy = false;
  }
}

void RequestTracker::give_back_sequence(Tracked& tracked) {
  if (!std::exchange(tracked.holds_sequence, false)) {
    return;
  }
  if (Node* node = membership_.find(tracked.route.decode)) {
    --node->sequences_given;
    node->busy = false;
  }
}

void RequestTracker::set_phase(Tracked& tracked, Phase phase) {
  BATON_CHECK(is_legal(tracked.phase, phase), "an illegal step of a request");
  tracked.phase = phase;
}

RequestTracker::Tracked* RequestTracker::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

// ---- what happens around requests

void RequestTracker::on_node_changed(Node&) {
  wake();
}

void RequestTracker::on_node_down(Node& node, const Error& why) {
  std::vector<RequestId> hit;
  for (const auto& [id, tracked] : requests_) {
    if (tracked->phase == Phase::Queued) {
      continue;
    }
    const bool decode = tracked->route.decode == node.handle;
    // Once decode has begun, all keys and values are there and prefill is no longer needed.
    const bool prefill = tracked->route.prefill == node.handle && !tracked->decode_has_begun;
    if (decode || prefill) {
      hit.push_back(id);
    }
  }
  for (const RequestId id : hit) {
    if (Tracked* tracked = find(id)) {
      attempt_failed(*tracked, node.handle, why);
    }
  }
  wake();
}

void RequestTracker::shut_down(const ApiError& error) {
  shut_down_ = error;
  std::vector<RequestId> ids;
  for (const auto& [id, tracked] : requests_) {
    ids.push_back(id);
  }
  for (const RequestId id : ids) {
    Tracked* tracked = find(id);
    if (tracked == nullptr) {
      continue;
    }
    send_cancel(*tracked, "shutting down");
    if (tracked->phase == Phase::Queued) {
      queue_.leave(tracked->request.model, tracked->ticket);
    }
    if (tracked->phase == Phase::Ending) {
      end(*tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    } else {
      end(*tracked, Phase::Failed, FinishReason::Error, error);
    }
  }
}

void RequestTracker::sweep() {
  const TimePoint now = executor_.now();
  for (const RequestId id : queue_.expired(now)) {
    Tracked& tracked = *find(id);
    queue_.leave(tracked.request.model, tracked.ticket);
    ApiError error = to_api_error(
        Error{ErrorCode::Unavailable, "The request waited too long for a free pair of nodes."});
    error.code = "queue_timeout";
    error.retry_after_s = retry_after_s();
    end(tracked, Phase::Failed, FinishReason::Error, std::move(error));
  }
  std::vector<RequestId> late;
  std::vector<RequestId> stopped;
  for (const auto& [id, tracked] : requests_) {
    if (tracked->phase == Phase::Ending && tracked->ending_until <= now) {
      stopped.push_back(id);
    } else if (tracked->deadline <= now) {
      late.push_back(id);
    }
  }
  for (const RequestId id : stopped) {
    end(*find(id), Phase::Finished, FinishReason::Stop, std::nullopt);
  }
  for (const RequestId id : late) {
    Tracked& tracked = *find(id);
    send_cancel(tracked, "deadline");
    if (tracked.phase == Phase::Queued) {
      queue_.leave(tracked.request.model, tracked.ticket);
    }
    if (tracked.phase == Phase::Ending) {
      end(tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    } else {
      end(tracked,
          Phase::Failed,
          FinishReason::Error,
          to_api_error(Error{ErrorCode::Timeout, "The request did not finish in time."}));
    }
  }
  probe_.queue_depth.set(static_cast<double>(queue_.size()));
  probe_.in_work.set(static_cast<double>(requests_.size() - queue_.size()));
}

void RequestTracker::arm_sweep() {
  sweep_timer_ = executor_.call_after(options_.sweep, [this] {
    sweep();
    wake();
    arm_sweep();
  });
}

// Dispatch runs as a task of its own, so that it never finds a request half changed.
void RequestTracker::wake() {
  if (dispatch_posted_ || queue_.size() == 0) {
    return;
  }
  dispatch_posted_ = true;
  executor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) {
      dispatch_posted_ = false;
      dispatch();
    }
  });
}

}  // namespace baton::gateway
