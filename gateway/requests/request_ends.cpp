// What ends an attempt or a request: failures of nodes and the failover that follows, the client,
// stop strings, and the end itself.
#include <algorithm>

#include "common/base/check.h"
#include "gateway/requests/request_tracker.h"

namespace baton::gateway {
namespace {

EndedRequest describe_end(const TrackedRequest& tracked, Phase phase, TimePoint now) {
  const auto micros = [](Duration time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  };
  EndedRequest ended;
  ended.id = tracked.request.id;
  ended.model = tracked.request.model;
  ended.tier = to_string(tracked.ticket.tier);
  ended.how = to_string(phase);
  if (tracked.first_token != TimePoint{}) {
    ended.ttft_us = micros(tracked.first_token - tracked.received);
  }
  ended.total_us = micros(now - tracked.received);
  ended.prompt_tokens = static_cast<std::uint32_t>(tracked.request.prompt.size());
  ended.output_tokens = tracked.num_output();
  ended.figures = tracked.figures;
  if (phase != Phase::Finished && ended.figures.kv_bytes_moved == 0 && !tracked.route.is_local()) {
    ended.figures.kv_transport = "unknown";  // nodes tell with their last event
  }
  ended.trace = tracked.trace;
  return ended;
}

}  // namespace

std::optional<EndedRequest> RequestTracker::describe(RequestId id) const {
  const auto found = requests_.find(id);
  if (found == requests_.end()) {
    return std::nullopt;
  }
  return describe_end(*found->second, found->second->phase, executor_.now());
}

// ---- ends from the client's side

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
  if (tracked == nullptr || tracked->phase == Phase::Ending) {
    return;
  }
  send_cancel(*tracked, "stop string");
  // Between two attempts there are no figures to wait for.
  if (!want_figures || tracked->phase != Phase::Decoding) {
    if (tracked->phase == Phase::Queued) {
      queue_.leave(tracked->request.model, tracked->ticket);
    }
    end(*tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    return wake();
  }
  set_phase(*tracked, Phase::Ending);
  set_due(*tracked, std::min(tracked->deadline, executor_.now() + options_.figures_timeout));
}

// ---- failures of nodes

void RequestTracker::node_reports(Tracked& tracked,
                                  const Node& node,
                                  const Error& error,
                                  bool is_refusal) {
  charge(tracked, node, error, is_refusal);
  const auto reason = failover_reason(error.code);
  if (!reason) {
    log_.warn("request {:016x} failed on '{}' while {}: {}: {}",
              tracked.request.id.value,
              node.name,
              to_string(tracked.phase),
              to_string(error.code),
              error.message);
    probe_.failed_attempts.add();
    send_cancel(tracked, "attempt failed");
    return give_up(tracked, to_client_error(error));
  }
  if (*reason == FailoverReason::Draining) {
    // Its heartbeat will say so too; until then nothing new for it.
    if (Node* drained = membership_.find(node.handle)) {
      drained->draining = true;
    }
    if (is_refusal && node.handle == tracked.route.decode) {
      return wait_again(tracked, "");  // nothing had begun
    }
  }
  const bool from_decode = node.handle == tracked.route.decode;
  Failure failure{.culprit = node.handle, .reason = *reason, .error = error};
  if (!tracked.route.is_local() && !is_refusal) {
    const NodeHandle peer = from_decode ? tracked.route.prefill : tracked.route.decode;
    if (error.code == ErrorCode::PeerDead || error.code == ErrorCode::PeerStalled ||
        error.code == ErrorCode::StaleIncarnation) {
      failure.culprit = peer;  // that is whom the node has lost
      failure.lost_peer = true;
    } else if (*reason == FailoverReason::Peer || *reason == FailoverReason::Checksum ||
               *reason == FailoverReason::Timeout) {
      failure.is_of_the_pair = true;
    }
    const Node* prefill = membership_.find(tracked.route.prefill);
    const Node* decode = membership_.find(tracked.route.decode);
    if (*reason == FailoverReason::Checksum && prefill != nullptr && decode != nullptr) {
      health_.mismatch({prefill->life(), decode->life()});
    }
  }
  failure.at_work = tracked.has_begun_on(failure.culprit);
  attempt_failed(tracked, std::move(failure));
}

void RequestTracker::breaks_the_wire(Tracked& tracked, const Node& node, const Error& error) {
  health_.failed({node.life(), {}}, tracked.begun, executor_.now());
  attempt_failed(tracked,
                 {.culprit = node.handle,
                  .reason = FailoverReason::Peer,
                  .error = error,
                  .at_work = tracked.has_begun_on(node.handle)});
}

void RequestTracker::charge(const Tracked& tracked,
                            const Node& node,
                            const Error& error,
                            bool is_refusal) {
  const TimePoint now = executor_.now();
  if (now >= tracked.deadline) {
    return;  // the request's own time is over
  }
  switch (blamed_for(error.code, is_refusal, !tracked.route.is_local())) {
    case Blamed::Nobody:
      return;
    case Blamed::Node:
      return health_.failed({node.life(), {}}, tracked.begun, now);
    case Blamed::Pair: {
      const Node* prefill = membership_.find(tracked.route.prefill);
      const Node* decode = membership_.find(tracked.route.decode);
      if (prefill != nullptr && decode != nullptr) {
        health_.failed({prefill->life(), decode->life()}, tracked.begun, now);
      }
    }
  }
}

void RequestTracker::on_node_down(Node& node, const Error& why) {
  last_loss_[node.model.id()] = executor_.now();
  routing_.on_node_down(node.handle);
  const FailoverReason reason = why.code == ErrorCode::PeerStalled ? FailoverReason::NodeStalled
                                : node.is_draining()               ? FailoverReason::Draining
                                                                   : FailoverReason::NodeDied;
  const TimePoint now = executor_.now();
  health_.left(node.life());
  if (reason != FailoverReason::Draining) {
    health_.failed({node.life(), {}}, now, now);
  }
  std::vector<RequestId> hit;
  std::vector<RequestId> blamed;
  for (const auto& [id, tracked] : requests_) {
    const bool decode = tracked->route.decode == node.handle;
    // Once decode has begun, all keys and values are there and prefill is no longer needed.
    const bool prefill = tracked->route.prefill == node.handle && !tracked->decode_has_begun;
    if (tracked->phase != Phase::Queued && (decode || prefill)) {
      hit.push_back(id);
    } else if (tracked->blame && tracked->blame->node == node.handle &&
               reason == FailoverReason::NodeDied) {
      blamed.push_back(id);
    }
  }
  for (const RequestId id : hit) {
    if (Tracked* tracked = find(id)) {
      attempt_failed(*tracked,
                     {.culprit = node.handle,
                      .reason = reason,
                      .error = why,
                      .at_work = tracked->has_begun_on(node.handle)});
    }
  }
  // Its peer has told of the death before the connection did.
  for (const RequestId id : blamed) {
    Tracked* tracked = find(id);
    if (tracked == nullptr) {
      continue;
    }
    const Blame blame = *std::exchange(tracked->blame, std::nullopt);
    if (!tracked->budget.was_death(tracked->num_output(), blame.at_work)) {
      send_cancel(*tracked, "too many nodes died");
      give_up(*tracked, to_client_error(why));
    }
  }
  wake();
}

void RequestTracker::attempt_failed(Tracked& tracked, Failure failure) {
  taken(tracked);
  const bool is_fault = failure.reason != FailoverReason::Draining &&
                        failure.reason != FailoverReason::Preempted &&
                        failure.reason != FailoverReason::NoCapacity;
  log_.warn("request {:016x} attempt {} on '{}' and '{}' ended while {} at token {}: {}: {}: {}",
            tracked.request.id.value,
            tracked.request.attempt.value,
            tracked.figures.prefill_node,
            tracked.figures.decode_node,
            to_string(tracked.phase),
            tracked.num_output(),
            to_string(failure.reason),
            to_string(failure.error.code),
            failure.error.message);
  if (is_fault) {
    probe_.failed_attempts.add();
  }
  send_cancel(tracked, "attempt failed");
  if (tracked.phase == Phase::Ending) {
    end(tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    return wake();
  }
  if (executor_.now() >= tracked.deadline) {
    return give_up(tracked,
                   to_api_error(Error{ErrorCode::Timeout, "The request did not finish in time."}));
  }
  if (!tracked.budget.spend(failure.reason, tracked.num_output(), failure.at_work)) {
    log_.error("request {:016x} ends after {} failovers; {} nodes died under it without progress",
               tracked.request.id.value,
               tracked.budget.failovers() - 1,
               tracked.budget.node_losses());
    return give_up(tracked, to_client_error(failure.error));
  }
  probe_.failover(failure.reason);
  ++tracked.figures.failovers;
  tracked.preemptions += failure.reason == FailoverReason::Preempted ? 1 : 0;
  const TimePoint now = executor_.now();
  const bool decoding = tracked.phase == Phase::Decoding;
  tracked.figures.lost.push_back(
      {.was_decoding = decoding,
       .by_decode_node = decoding || tracked.route.is_local(),
       .node = decoding ? tracked.figures.decode_node : tracked.figures.prefill_node,
       .from = tracked.since_received(decoding ? std::max(tracked.first_token, tracked.begun)
                                               : tracked.begun),
       .to = tracked.since_received(now)});
  std::erase_if(tracked.avoid, [now](const Avoided& avoided) { return avoided.until <= now; });
  const TimePoint until = now + options_.avoid_for;
  if (!failure.is_of_the_pair) {
    tracked.avoid.push_back({{failure.culprit, NodeHandle{}}, until});
  }
  if (failure.is_of_the_pair || failure.lost_peer) {
    tracked.avoid.push_back({{tracked.route.prefill, tracked.route.decode}, until});
  }
  const auto pause = tracked.budget.pause();
  if (pause.count() > 0) {
    tracked.rest_until = now + pause;
    tracked.rest = executor_.call_after(pause, [this] { wake(); });
  }
  // A new wait at the old place: what it has waited before is not held against it.
  tracked.ticket.expires = now + queue_.policy(tracked.ticket.tier).timeout;
  tracked.blame.reset();
  if (failure.reason == FailoverReason::Peer) {
    tracked.blame = Blame{failure.culprit, failure.at_work};
  }
  wait_again(tracked, "");
}

// Nothing was lost but the grant: another place in the same order.
void RequestTracker::wait_again(Tracked& tracked, const std::string& reason) {
  if (!reason.empty()) {
    send_cancel(tracked, reason);
  }
  give_back_credit(tracked);
  give_back_sequence(tracked);
  settle_blocks(tracked, false);
  tracked.trial.reset();
  set_phase(tracked, Phase::Queued);
  tracked.request.attempt = Attempt{tracked.request.attempt.value + 1};
  queue_.reenter(tracked.request.model, tracked.request.id, tracked.ticket, executor_.now());
  wake();
}

// ---- the end

void RequestTracker::give_up(Tracked& tracked, ApiError error) {
  if (tracked.phase == Phase::Queued) {
    queue_.leave(tracked.request.model, tracked.ticket);
  }
  if (tracked.phase == Phase::Ending) {
    end(tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
  } else {
    end(tracked, Phase::Failed, FinishReason::Error, std::move(error));
  }
  wake();
}

void RequestTracker::end_early(Tracked& tracked, const std::string& reason, ApiError error) {
  send_cancel(tracked, reason);
  if (tracked.phase == Phase::Queued) {
    queue_.leave(tracked.request.model, tracked.ticket);
  }
  if (tracked.phase == Phase::Ending) {
    end(tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
  } else {
    end(tracked, Phase::Failed, FinishReason::Error, std::move(error));
  }
}

void RequestTracker::end(Tracked& tracked,
                         Phase phase,
                         FinishReason finish,
                         std::optional<ApiError> error) {
  taken(tracked);
  give_back_credit(tracked);
  give_back_sequence(tracked);
  settle_blocks(tracked, false);
  set_phase(tracked, phase);
  const TimePoint now = executor_.now();
  const double seconds = std::chrono::duration<double>(now - tracked.received).count();
  probe_.ended(phase);
  tracked.probe->e2e[static_cast<std::size_t>(tracked.ticket.tier)].observe(seconds);
  tracked.probe->prompt_tokens.add(static_cast<double>(tracked.request.prompt.size()));
  if (phase == Phase::Finished && tracked.figures.kv_bytes_moved > 0) {
    probe_.transfer.observe(static_cast<double>(tracked.figures.transfer.count()) / 1e6);
  }
  if (options_.on_ended) {
    options_.on_ended(describe_end(tracked, phase, now));
  }
  due_.erase({tracked.due, tracked.request.id});
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

void RequestTracker::send_cancel_to(Node& node,
                                    RequestId id,
                                    Attempt attempt,
                                    const std::string& reason) {
  wire::Frame frame;
  wire::Cancel& body = *frame.mutable_cancel();
  body.set_request(id.value);
  body.set_attempt(attempt.value);
  body.set_reason(reason);
  node.channel->send(std::move(frame));
}

void RequestTracker::set_phase(Tracked& tracked, Phase phase) {
  BATON_CHECK(is_legal(tracked.phase, phase), "an illegal step of a request");
  tracked.phase = phase;
}

}  // namespace baton::gateway
