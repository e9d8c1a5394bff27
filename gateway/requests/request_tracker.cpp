// Admission, dispatch and time. Invariants of all three files: a request is in the queue exactly
// while it is Queued; it holds a credit only from reserve() to the first token of its prefill node
// or its end; each Reserve has an attempt number of its own, so that whatever an earlier one still
// sends is dropped; its output is what the client's side was given, token for token.
#include "gateway/requests/request_tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::gateway {
namespace {

constexpr std::uint32_t kLikelyAnswer = 256;
constexpr int kWaitPart = 10;  // early refusal: at least this part of the deadline is waiting
constexpr std::int64_t kLongestRetryS = 30;

ApiError no_pair_error() {
  return to_api_error(Error{ErrorCode::Unavailable,
                            "No pair of prefill and decode nodes can serve this model now."});
}

ApiError late_error(Duration target, Tier tier) {
  return to_api_error(
      Error{ErrorCode::Busy,
            fmt::format("The first token could not come within {} ms, which tier '{}' promises; "
                        "too much waits before it. Try again later.",
                        std::chrono::duration_cast<std::chrono::milliseconds>(target).count(),
                        to_string(tier))});
}

bool avoids_any(const TrackedRequest& tracked, TimePoint now) {
  return std::ranges::any_of(tracked.avoid,
                             [now](const Avoided& avoided) { return avoided.until > now; });
}

// What a request counts in its tier's share: the prompt, and so much of the answer as is likely.
std::uint64_t work_of(const GenerateRequest& request) {
  return request.prompt.size() + std::min(request.max_tokens, kLikelyAnswer);
}

}  // namespace

RequestTracker::RequestTracker(Executor& executor,
                               Membership& membership,
                               RouteHealth& health,
                               const Logger& log,
                               const Probe& probe,
                               TrackerOptions options)
    : executor_(executor),
      membership_(membership),
      health_(health),
      log_(log),
      probe_(probe),
      options_(options),
      queue_(tier_policies(options.tiers, options.queue_limit, options.queue_timeout)),
      routing_(options.routing) {
  arm_sweep();
}

RequestTracker::~RequestTracker() = default;

void RequestTracker::change_limits(const TrackerOptions& options) {
  options_.queue_limit = options.queue_limit;
  options_.queue_timeout = options.queue_timeout;
  options_.tiers = options.tiers;
  options_.request_timeout = options.request_timeout;
  queue_.set_policies(tier_policies(options.tiers, options.queue_limit, options.queue_timeout));
}

void RequestTracker::submit(Submission submission) {
  auto tracked = std::make_unique<Tracked>();
  tracked->request = std::move(submission.request);
  tracked->sink = std::move(submission.sink);
  tracked->chains = std::move(submission.chains);
  tracked->affinity = submission.affinity;
  tracked->trace = submission.trace;
  tracked->probe = &probe_.of(tracked->request.model);
  tracked->received = submission.received;
  tracked->last_token = submission.received;
  tracked->deadline = submission.received + options_.request_timeout;
  tracked->budget = FailoverBudget(options_.failover);
  if (options_.on_submitted) {
    options_.on_submitted(tracked->request);
  }
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
  TtftPrediction& prediction = predictions_[tracked->request.model];
  const std::uint64_t work = work_of(tracked->request);
  prediction.on_offered(executor_.now(), submission.tier, work);
  if (auto late = refuse_early(*tracked, submission.tier)) {
    probe_.refused_early.add();
    return refuse(std::move(*late));
  }
  const auto ticket = queue_.enter(tracked->request.model,
                                   tracked->request.id,
                                   submission.tier,
                                   work,
                                   submission.received,
                                   executor_.now(),
                                   tracked->latest_begin);
  if (!ticket) {
    ApiError error = to_api_error(Error{
        ErrorCode::Busy,
        fmt::format("The server has {} requests waiting and takes no more now. Try again later.",
                    queue_.size(submission.tier))});
    error.retry_after_s = retry_after_s();
    return refuse(std::move(error));
  }
  tracked->ticket = *ticket;
  const std::string model = tracked->request.model;
  set_due(*tracked, tracked->deadline);
  requests_.emplace(tracked->request.id, std::move(tracked));
  dispatch_model(model);
}

std::optional<ApiError> RequestTracker::refuse_early(Tracked& tracked, Tier tier) {
  const TierPolicy& policy = queue_.policy(tier);
  if (policy.ttft_target == Duration{}) {
    return std::nullopt;
  }
  const std::string& model = tracked.request.model;
  const TtftPrediction& prediction = predictions_[model];
  const std::vector<NodeView> views = views_of(model);
  const auto prompt_tokens = static_cast<std::uint32_t>(tracked.request.prompt.size());
  tracked.predicted = prediction.predict(
      views, queue_.backlog(model, executor_.now()), queue_.policies(), tier, prompt_tokens);
  if (!policy.refuse_early) {
    return std::nullopt;
  }
  const auto& predicted = tracked.predicted;
  if (!predicted || predicted->total() <= policy.ttft_target) {
    const Duration needed = prediction.needed(views, tier, prompt_tokens);
    if (needed < policy.ttft_target) {
      tracked.latest_begin = tracked.received + policy.ttft_target - needed;
    }
    return std::nullopt;
  }
  // A prompt that takes longer by itself is not refused for that: later it would be no faster.
  if (predicted->weighted_wait() * kWaitPart < policy.ttft_target) {
    return std::nullopt;
  }
  const auto late =
      std::chrono::ceil<std::chrono::seconds>(predicted->total() - policy.ttft_target);
  ApiError error = late_error(policy.ttft_target, tier);
  error.retry_after_s =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(late.count(), 1, kLongestRetryS));
  return error;
}

void RequestTracker::refuse_late(Tracked& tracked) {
  const Tier tier = tracked.ticket.tier;
  const Duration target = tracked.ticket.place.due - tracked.received;
  const auto route = route_for(tracked, views_of(tracked.request.model), {}, {});
  queue_.leave(tracked.request.model, tracked.ticket);
  if (!route && route.error() == RouteMiss::NoPair) {  // it did not wait behind others
    return end(tracked, Phase::Failed, FinishReason::Error, no_pair_error());
  }
  if (tracked.predicted) {
    predictions_[tracked.request.model].on_expired(tier, *tracked.predicted, target);
  }
  probe_.refused_late.add();
  ApiError error = late_error(target, tier);
  error.retry_after_s = retry_after_s();
  end(tracked, Phase::Refused, FinishReason::Error, std::move(error));
}

WaitingPrompts RequestTracker::waiting(const std::string& model) const {
  WaitingPrompts waiting;
  for (const auto& [id, tracked] : requests_) {
    if (tracked->phase == Phase::Queued && tracked->request.model == model) {
      ++waiting.requests;
      waiting.tokens += tracked->num_context();
    }
  }
  return waiting;
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
  const TimePoint now = executor_.now();
  const std::vector<NodePair> out = barred_pairs(health_, membership_);
  std::vector<NodePair> resting = resting_parts(health_, membership_, now);
  std::vector<NodeView> views = views_of(model);
  bool is_stale = false;  // what is known of the nodes, since one has been given work
  AdmissionQueue::Scan scan;
  while (const auto id = queue_.next(model, now, scan)) {
    if (std::exchange(is_stale, false)) {
      views = views_of(model);
      resting = resting_parts(health_, membership_, now);  // one that was to be tried is taken
    }
    Tracked& tracked = *find(*id);
    if (tracked.rest_until > now) {
      continue;
    }
    if (tracked.is_too_late(now)) {
      refuse_late(tracked);  // its place is worth more to one that can still be in time
      continue;
    }
    const auto route = route_for(tracked, views, out, resting);
    if (route) {
      if (const auto full = full_.find(model);
          full != full_.end() && full->second.seen >= tracked.received) {
        tracked.waiting_on = full->second.who;
      }
      tracked.sent = routing_.sent(*route, views, tracked.request.prompt, tracked.chains);
      reserve(tracked, *route);
      is_stale = true;
    } else if (route.error() == RouteMiss::NoPair) {
      if (!may_wait_for_pair(tracked)) {
        queue_.leave(model, tracked.ticket);
        end(tracked, Phase::Failed, FinishReason::Error, no_pair_error());
      }
    } else if (!avoids_any(tracked, now)) {
      full_[model] = {who_is_full(views), now};
      return;  // the first waits, and nobody overtakes it; one that is choosy waits aside
    }
  }
}

std::vector<NodeView> RequestTracker::views_of(const std::string& model) const {
  std::vector<NodeView> views = membership_.views_of(model);
  routing_.describe(views, executor_.now());
  return views;
}

std::expected<Route, RouteMiss> RequestTracker::route_for(Tracked& tracked,
                                                          std::span<const NodeView> views,
                                                          std::span<const NodePair> out,
                                                          std::span<const NodePair> resting) {
  std::vector<NodeHandle> nodes;
  std::vector<NodePair> pairs;
  const TimePoint now = executor_.now();
  for (const Avoided& avoided : tracked.avoid) {
    if (avoided.until <= now) {
      continue;
    }
    if (avoided.is_pair()) {
      pairs.push_back(avoided.nodes);
    } else {
      nodes.push_back(avoided.nodes.prefill);
    }
  }
  RouteNeed need;
  need.prompt_tokens = static_cast<std::uint32_t>(tracked.request.prompt.size());
  need.context_tokens = tracked.num_context();
  need.total_tokens = need.prompt_tokens + tracked.request.max_tokens;
  need.model_stamp = tracked.model_stamp;
  need.avoid = nodes;
  need.avoid_pairs = pairs;
  need.out = out;
  need.resting = resting;
  need.policy = routing_.options().policy;
  need.held_tokens = routing_.held_tokens(views, tracked.request.prompt, tracked.chains, now);
  need.affinity = tracked.affinity;
  need.draw = tracked.request.id.value;
  need.links = &routing_.links();
  need.itl_tokens = routing_.options().itl_tokens;
  need.pulls = routing_.options().pulls;
  return choose_route(views, need);
}

bool RequestTracker::may_wait_for_pair(const Tracked& tracked) const {
  if (tracked.is_resumed()) {
    return true;
  }
  const auto loss = last_loss_.find(tracked.request.model);
  if (loss != last_loss_.end() && executor_.now() < loss->second + options_.restart_wait) {
    return true;
  }
  // A node that drains is probably to be started anew.
  return std::ranges::any_of(membership_.nodes(), [&](const Node* node) {
    return node->model.id() == tracked.request.model && node->is_draining();
  });
}

RequestTracker::Tracked* RequestTracker::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

void RequestTracker::on_node_changed(Node& node) {
  probe_.of(node.model.id());  // a rate counts from the first request on
  health_.started(node.life());
  if (node.role == NodeRole::Decode) {
    routing_.on_step(node.handle,
                     node.load.engine_steps(),
                     node.load.running(),
                     node.load.decode_step_ms() / 1e3,
                     executor_.now());
  }
  wake();
}

void RequestTracker::on_kv_events(const Node& node, const wire::KvEvents& events) {
  routing_.on_events(
      node.handle,
      {.sequence = events.sequence(),
       .reset = events.reset(),
       .stored = {events.stored().data(), events.stored().data() + events.stored_size()},
       .removed = {events.removed().data(), events.removed().data() + events.removed_size()}});
}

void RequestTracker::shut_down(const ApiError& error) {
  shut_down_ = error;
  std::vector<RequestId> ids;
  for (const auto& [id, tracked] : requests_) {
    ids.push_back(id);
  }
  for (const RequestId id : ids) {
    if (Tracked* tracked = find(id)) {
      end_early(*tracked, "shutting down", error);
    }
  }
}

void RequestTracker::sweep() {
  const TimePoint now = executor_.now();
  health_.sweep(now);
  for (const RequestId id : queue_.expired(now)) {
    Tracked& tracked = *find(id);
    if (tracked.is_too_late(now)) {
      refuse_late(tracked);
      continue;
    }
    ApiError error = to_api_error(
        Error{ErrorCode::Unavailable,
              tracked.is_resumed()
                  ? "The nodes that worked on the request were lost, and no others came in time."
                  : "The request waited too long for a free pair of nodes."});
    error.code = "queue_timeout";
    error.retry_after_s = retry_after_s();
    end_early(tracked, "waited too long", std::move(error));
  }
  while (!due_.empty() && due_.begin()->first <= now) {
    end_early(*find(due_.begin()->second),
              "deadline",
              to_api_error(Error{ErrorCode::Timeout, "The request did not finish in time."}));
  }
  probe_.queue_depth.set(static_cast<double>(queue_.size()));
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    probe_.waiting[i].set(static_cast<double>(queue_.size(static_cast<Tier>(i))));
  }
  probe_.in_work.set(static_cast<double>(requests_.size() - queue_.size()));
}

void RequestTracker::set_due(Tracked& tracked, TimePoint due) {
  due_.erase({tracked.due, tracked.request.id});
  tracked.due = due;
  due_.emplace(due, tracked.request.id);
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
