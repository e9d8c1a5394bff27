// One attempt: Reserve, Prefill, and the tokens that both nodes send for it.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/wire/convert.h"
#include "gateway/requests/request_tracker.h"

namespace baton::gateway {
namespace {

// Preempted so often, it asks for blocks for all it may generate.
constexpr std::uint32_t kPreemptionsBeforeFull = 2;

std::chrono::microseconds elapsed(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::microseconds>(to - from);
}

// What of a route has a breaker. REQUIRES: its nodes are there.
std::vector<RouteHealth::Part> parts_of(const Route& route, Membership& membership) {
  const NodeLife decode = membership.find(route.decode)->life();
  if (route.is_local()) {
    return {{decode, {}}};
  }
  const NodeLife prefill = membership.find(route.prefill)->life();
  return {{prefill, {}}, {decode, {}}, {prefill, decode}};
}

}  // namespace

void RequestTracker::reserve(Tracked& tracked, const Route& route) {
  tracked.begun = executor_.now();
  queue_.take(tracked.request.model, tracked.ticket, tracked.begun);
  set_phase(tracked, Phase::Reserving);
  tracked.route = route;
  tracked.decode_has_begun = false;
  tracked.order.restart();
  BATON_CHECK(tracked.order.next_index() == tracked.num_output(), "tokens were lost");
  Node* decode = membership_.find(route.decode);
  BATON_CHECK(decode != nullptr, "the router chose a node that is not there");
  tracked.figures.decode_node = decode->name;
  tracked.figures.prefill_node = decode->name;
  if (!route.is_local()) {
    Node* prefill = membership_.find(route.prefill);
    BATON_CHECK(prefill != nullptr, "the router chose a node that is not there");
    tracked.figures.prefill_node = prefill->name;
    book_prefill(tracked, *prefill);
  }
  ++decode->open_reserves;
  if (!health_.is_well()) {
    tracked.trial = health_.begin(parts_of(route, membership_), tracked.begun);
  }
  tracked.request.deadline = std::max(
      std::chrono::milliseconds(1),
      std::chrono::duration_cast<std::chrono::milliseconds>(tracked.deadline - tracked.begun));
  wire::Frame frame;
  wire::Reserve& body = *frame.mutable_reserve();
  *body.mutable_request() = to_wire(tracked.request);
  body.mutable_request()->set_traceparent(tracked.trace.traceparent());
  body.set_local(route.is_local());
  body.set_reserve_full(tracked.preemptions >= kPreemptionsBeforeFull);
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

void RequestTracker::book_prefill(Tracked& tracked, Node& prefill) {
  const std::uint32_t context = tracked.num_context();
  tracked.tokens_booked = context - std::min(tracked.route.held_tokens, context - 1);
  ++prefill.credits_taken;
  tracked.alone_as = prefill.credits_used == 0 ? prefill.credits_taken : 0;
  ++prefill.credits_used;
  prefill.tokens_given += tracked.tokens_booked;
  tracked.context_booked = context;
  prefill.contexts_given += context;
  prefill.work.begin(tracked.route.prefill_s, tracked.begun);
  tracked.holds_credit = true;
}

void RequestTracker::on_reserved(RequestId id,
                                 Attempt attempt,
                                 NodeHandle decode,
                                 Result<wire::Frame> answer) {
  Node* node = membership_.find(decode);
  const bool is_full = !answer && (answer.error().code == ErrorCode::Busy ||
                                   answer.error().code == ErrorCode::NoBlocks);
  if (node != nullptr) {
    --node->open_reserves;
    if (is_full) {
      node->busy = true;
      probe_.reserve_busy.add();
    }
  }
  Tracked* tracked = find(id);
  if (tracked == nullptr || tracked->request.attempt != attempt ||
      tracked->phase != Phase::Reserving) {
    // Ended meanwhile. The Cancel may have overtaken the Reserve inside the node.
    if (node != nullptr && answer && answer->has_granted()) {
      send_cancel_to(*node, id, attempt, "no longer wanted");
    }
    return wake();
  }
  if (is_full) {
    return wait_again(*tracked, "");
  }
  if (node == nullptr) {
    return attempt_failed(
        *tracked,
        {.culprit = decode,
         .reason = FailoverReason::Peer,
         .error = answer ? Error{ErrorCode::PeerDead, "the node has gone"} : answer.error(),
         .at_work = false});
  }
  if (!answer) {
    return node_reports(*tracked, *node, answer.error(), true);
  }
  if (!answer->has_granted()) {
    return node_reports(*tracked,
                        *node,
                        Error{ErrorCode::ProtocolError, "Reserve was not answered by a grant"},
                        true);
  }
  granted(*tracked, *node, answer->granted().grant());
  wake();
}

void RequestTracker::granted(Tracked& tracked, Node& decode, const wire::KvGrant& grant) {
  ++decode.sequences_given;
  ++decode.sequences_ever_given;
  tracked.holds_sequence = true;
  tracked.model_stamp = decode.model_stamp;
  tracked.granted = executor_.now();
  // Only now: a decode node that is full refuses many for each that it takes.
  predictions_[tracked.request.model].on_begun(
      tracked.granted, tracked.ticket.tokens, queue_.size() > 0);
  if (++tracked.figures.attempts == 1) {
    tracked.figures.queue = elapsed(tracked.received, tracked.granted);
    const double seconds = std::chrono::duration<double>(tracked.figures.queue).count();
    probe_.queue_time.observe(seconds);
    probe_.queue[static_cast<std::size_t>(tracked.waiting_on)].observe(seconds);
  } else {
    probe_.resumed_tokens.add(tracked.num_output());
    log_.info("request {:016x} goes on at token {} on '{}' and '{}', attempt {}",
              tracked.request.id.value,
              tracked.num_output(),
              tracked.figures.prefill_node,
              tracked.figures.decode_node,
              tracked.request.attempt.value);
  }
  set_phase(tracked, Phase::Prefilling);
  if (!tracked.route.is_local()) {
    prefill(tracked, grant);
  }
}

void RequestTracker::prefill(Tracked& tracked, const wire::KvGrant& grant) {
  Node* node = membership_.find(tracked.route.prefill);
  BATON_CHECK(node != nullptr, "a request whose prefill node is gone has been ended");
  wire::Frame frame;
  wire::Prefill& body = *frame.mutable_prefill();
  *body.mutable_request() = to_wire(tracked.request);
  body.mutable_request()->set_traceparent(tracked.trace.traceparent());
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
  Node* node = membership_.find(prefill);
  if (answer || tracked == nullptr || node == nullptr || tracked->request.attempt != attempt ||
      tracked->phase != Phase::Prefilling) {
    return;
  }
  if (answer.error().code == ErrorCode::Busy) {
    --tracked->figures.attempts;  // it has not begun
    wait_again(*tracked, "prefill node busy");
    node->busy = true;  // until its next heartbeat or a credit comes back
    return;
  }
  node_reports(*tracked, *node, answer.error(), true);
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
        node_reports(*tracked, node, event.error());
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
  if (event.figures) {
    add_figures(*tracked, node, *event.figures);
    learn(*tracked, node, *event.figures);
  }
  if (tracked->phase == Phase::Ending) {
    if (event.finish != FinishReason::None && from_decode) {
      end(*tracked, Phase::Finished, FinishReason::Stop, std::nullopt);
    }
    return;
  }
  if (event.finish == FinishReason::Error || event.finish == FinishReason::Cancelled) {
    return node_reports(
        *tracked,
        node,
        event.error.value_or(Error{
            event.finish == FinishReason::Cancelled ? ErrorCode::GrantRevoked : ErrorCode::Internal,
            "the node ended the request"}));
  }
  if (from_decode && !event.tokens.empty()) {
    decode_begins(*tracked, node);
  }
  if (node.handle == tracked->route.prefill &&
      (!event.tokens.empty() || event.finish != FinishReason::None)) {
    give_back_credit(*tracked);
    prefill_served(*tracked, node);
  }
  ready_.clear();
  const auto repeats = tracked->order.dropped();
  if (const auto pushed = tracked->order.push(std::move(event), ready_); !pushed) {
    return node_reports(*tracked, node, pushed.error());
  }
  if (tracked->order.dropped() != repeats) {
    probe_.stale_events.add();
  }
  if (!ready_.empty()) {
    deliver(*tracked, ready_);
  }
}

void RequestTracker::prefill_served(const Tracked& tracked, const Node& prefill) {
  if (!health_.is_well()) {
    health_.served({prefill.life(), {}}, tracked.begun, executor_.now());
  }
}

void RequestTracker::decode_begins(Tracked& tracked, const Node& decode) {
  if (std::exchange(tracked.decode_has_begun, true)) {
    return;
  }
  const Node* prefill = membership_.find(tracked.route.prefill);
  if (prefill != nullptr) {
    health_.verified({prefill->life(), decode.life()});
  }
  if (!health_.is_well()) {
    const TimePoint now = executor_.now();
    health_.served({decode.life(), {}}, tracked.begun, now);
    if (prefill != nullptr) {
      health_.served({prefill->life(), decode.life()}, tracked.begun, now);
    }
  }
}

void RequestTracker::deliver(Tracked& tracked, std::span<TokenEvent> ready) {
  const TimePoint now = executor_.now();
  if (tracked.phase == Phase::Prefilling && !ready.front().tokens.empty()) {
    set_phase(tracked, Phase::Decoding);
    settle_blocks(tracked, true);
  }
  const auto tier = static_cast<std::size_t>(tracked.ticket.tier);
  FinishReason finish = FinishReason::None;
  std::vector<TokenId>& output = tracked.request.output;
  for (TokenEvent& event : ready) {
    const auto count = event.tokens.size();
    if (count > 0) {
      const double seconds = std::chrono::duration<double>(now - tracked.last_token).count();
      if (event.index == 0) {
        tracked.probe->ttft[tier].observe(seconds);
        tracked.first_token = now;
        if (tracked.figures.failovers == 0) {
          TtftPrediction& prediction = predictions_[tracked.request.model];
          prediction.on_computed(now - tracked.granted);
          if (tracked.predicted) {
            prediction.on_first_token(tracked.ticket.tier,
                                      *tracked.predicted,
                                      now - tracked.received,
                                      queue_.policy(tracked.ticket.tier).ttft_target);
          }
        }
      } else {
        tracked.probe->itl[tier].observe(seconds);
      }
      tracked.probe->generated_tokens.add(static_cast<double>(count));
      tracked.last_token = now;
      output.insert(output.end(), event.tokens.begin(), event.tokens.end());
    }
    finish = event.finish;
    tracked.sink->on_tokens(std::move(event));
  }
  if (finish != FinishReason::None) {
    end(tracked, Phase::Finished, finish, std::nullopt);
  }
}

// What describes the time to the first token comes from the attempt that gave it; what describes
// the transfer, from the last.
void RequestTracker::add_figures(Tracked& tracked,
                                 const Node& node,
                                 const RequestFigures& figures) {
  AnswerFigures& all = tracked.figures;
  const bool computes = node.handle == tracked.route.prefill || tracked.route.is_local();
  if (computes && !std::exchange(tracked.has_prompt_figures, true)) {
    // A resumed attempt may find more than the prompt.
    all.cached_tokens =
        std::min(figures.cached_tokens, static_cast<std::uint32_t>(tracked.request.prompt.size()));
    all.pulled_tokens = figures.pulled_tokens;
    all.prefill = std::chrono::microseconds(figures.compute_us);
    all.chunks = figures.chunks;
    all.queue =
        elapsed(tracked.received, tracked.granted) + std::chrono::microseconds(figures.queue_us);
    if (!tracked.route.is_local()) {
      probe_.prefill.observe(static_cast<double>(figures.queue_us + figures.compute_us) / 1e6);
    }
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
  all.drafted_tokens += figures.drafted_tokens;
  all.accepted_tokens += figures.accepted_tokens;
}

void RequestTracker::learn(const Tracked& tracked,
                           const Node& node,
                           const RequestFigures& figures) {
  if (tracked.route.is_local()) {
    return;
  }
  if (node.handle == tracked.route.prefill && tracked.alone_as == node.credits_taken) {
    const std::uint32_t held = figures.cached_tokens + figures.pulled_tokens;
    const std::uint32_t context = tracked.num_context();
    routing_.on_prefill(node.handle,
                        held,
                        context - std::min(held, context),
                        static_cast<double>(figures.compute_us) / 1e6);
  } else if (node.handle == tracked.route.decode) {
    routing_.on_transfer({tracked.route.prefill, tracked.route.decode},
                         figures.kv_bytes_moved,
                         static_cast<double>(figures.transfer_us) / 1e6,
                         std::chrono::duration<double>(tracked.figures.prefill).count());
  }
}

// ---- what an attempt holds on nodes

void RequestTracker::give_back_credit(Tracked& tracked) {
  if (!std::exchange(tracked.holds_credit, false)) {
    return;
  }
  if (Node* node = membership_.find(tracked.route.prefill)) {
    --node->credits_used;
    node->tokens_given -= tracked.tokens_booked;
    node->contexts_given -= tracked.context_booked;
    node->work.end(tracked.route.prefill_s, executor_.now());
    node->busy = false;
  }
}

void RequestTracker::settle_blocks(Tracked& tracked, bool was_computed) {
  routing_.settled(std::exchange(tracked.sent, 0), executor_.now(), was_computed);
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

}  // namespace baton::gateway
