// One attempt: Reserve, what the nodes say to it, and the tokens that both send for it.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/wire/convert.h"
#include "gateway/requests/request_tracker.h"

namespace baton::gateway {
namespace {

// Preempted so often, it asks for blocks for all it may generate.
constexpr std::uint32_t kPreemptionsBeforeFull = 2;

void fill(wire::GenerateRequest& message, const TrackedRequest& tracked) {
  message = to_wire(tracked.request);
  message.set_traceparent(tracked.trace.traceparent());
}

bool are_of_vocabulary(std::span<const TokenId> tokens, std::uint32_t vocab) {
  return std::ranges::all_of(tokens, [vocab](TokenId token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < vocab;
  });
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
  set_phase(tracked, Phase::Prefilling);
  tracked.route = route;
  tracked.decode_has_begun = false;
  tracked.order.restart();
  BATON_CHECK(tracked.order.next_index() == tracked.num_output(), "tokens were lost");
  Node* decode = membership_.find(route.decode);
  BATON_CHECK(decode != nullptr, "the router chose a node that is not there");
  tracked.figures.decode_node = decode->name;
  tracked.figures.prefill_node = decode->name;
  wire::Frame frame;
  wire::Reserve& body = *frame.mutable_reserve();
  if (!route.is_local()) {
    Node* prefill = membership_.find(route.prefill);
    BATON_CHECK(prefill != nullptr, "the router chose a node that is not there");
    tracked.figures.prefill_node = prefill->name;
    body.set_prefill_node(prefill->name);
    body.set_prefill_incarnation(prefill->incarnation.value);
    book_prefill(tracked, *prefill);
  }
  book_sequence(tracked, *decode);
  if (!health_.is_well()) {
    tracked.trial = health_.begin(parts_of(route, membership_), tracked.begun);
  }
  tracked.request.deadline = std::max(
      std::chrono::milliseconds(1),
      std::chrono::duration_cast<std::chrono::milliseconds>(tracked.deadline - tracked.begun));
  fill(*body.mutable_request(), tracked);
  body.set_local(route.is_local());
  body.set_reserve_full(tracked.preemptions >= kPreemptionsBeforeFull);
  decode->channel->send(std::move(frame));
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

void RequestTracker::book_sequence(Tracked& tracked, Node& decode) {
  ++decode.sequences_given;
  tracked.holds_sequence = true;
  tracked.model_stamp = decode.model_stamp;
  tracked.awaits_sign = true;
  tracked.counted = predictions_[tracked.request.model].on_begun(
      tracked.begun, tracked.ticket.tokens, queue_.size() > 0);
  if (++tracked.figures.attempts == 1) {
    tracked.figures.queue = tracked.since_received(tracked.begun);
  }
}

void RequestTracker::taken(Tracked& tracked) {
  if (!std::exchange(tracked.awaits_sign, false)) {
    return;
  }
  if (Node* decode = membership_.find(tracked.route.decode)) {
    ++decode->sequences_taken;
  }
  if (tracked.figures.attempts == 1) {
    const double seconds = std::chrono::duration<double>(tracked.begun - tracked.received).count();
    probe_.queue_time.observe(seconds);
    probe_.queue[static_cast<std::size_t>(tracked.waiting_on)].observe(seconds);
    return;
  }
  probe_.resumed_tokens.add(tracked.num_output());
  log_.info("request {:016x} goes on at token {} on '{}' and '{}', attempt {}",
            tracked.request.id.value,
            tracked.num_output(),
            tracked.figures.prefill_node,
            tracked.figures.decode_node,
            tracked.request.attempt.value);
}

void RequestTracker::refused(Tracked& tracked, Node& node, const Error& error) {
  const bool from_decode = node.handle == tracked.route.decode;
  Node* decode = membership_.find(tracked.route.decode);
  if (std::exchange(tracked.awaits_sign, false) && !from_decode && decode != nullptr) {
    ++decode->sequences_taken;  // that one had taken it
  }
  predictions_[tracked.request.model].on_refused(tracked.counted);
  if (--tracked.figures.attempts == 0) {
    tracked.model_stamp = 0;
  }
  if (error.code != ErrorCode::Busy && error.code != ErrorCode::NoBlocks) {
    return node_reports(tracked, node, error, true);
  }
  if (from_decode) {
    probe_.reserve_busy.add();
    wait_again(tracked, "");
  } else {
    wait_again(tracked, "prefill node busy");
  }
  node.busy = true;  // until its next heartbeat, or until something ends there
}

// No connection joins the two nodes yet: the prefill node makes it once it has the grant.
void RequestTracker::on_granted(Node& decode, wire::Granted& granted) {
  const RequestId id{granted.request()};
  const Attempt attempt{granted.attempt()};
  Tracked* tracked = find(id);
  if (tracked == nullptr || tracked->request.attempt != attempt ||
      tracked->phase == Phase::Queued || decode.handle != tracked->route.decode) {
    // Ended meanwhile. The Cancel may have overtaken the Reserve inside the node.
    return send_cancel_to(decode, id, attempt, "no longer wanted");
  }
  if (!tracked->awaits_sign || tracked->route.is_local()) {
    probe_.stale_events.add();
    return;
  }
  taken(*tracked);
  Node* prefill = membership_.find(tracked->route.prefill);
  BATON_CHECK(prefill != nullptr, "a request whose prefill node is gone has been ended");
  wire::Frame frame;
  wire::Prefill& body = *frame.mutable_prefill();
  fill(*body.mutable_request(), *tracked);
  body.mutable_grant()->Swap(granted.mutable_grant());
  prefill->channel->send(std::move(frame));
}

// ---- tokens

void RequestTracker::on_tokens(Node& node, const wire::TokenFrame& frame) {
  for (const wire::TokenEvent& message : frame.events()) {
    auto event = from_wire(message);
    if (event && !are_of_vocabulary(event->tokens, node.model.vocab_size())) {
      event = fail(ErrorCode::ProtocolError, "a token that is not in the vocabulary");
    }
    if (!event) {
      probe_.bad_events.add();
      log_.warn("node '{}' sent a broken token event: {}", node.name, event.error().message);
      Tracked* tracked = find(RequestId{message.request()});
      if (tracked != nullptr && is_at_work(*tracked, node)) {
        breaks_the_wire(*tracked, node, event.error());
      }
      continue;
    }
    on_event(node, std::move(*event));
  }
  wake();
}

bool RequestTracker::is_at_work(const Tracked& tracked, const Node& node) {
  return tracked.phase != Phase::Queued &&
         (node.handle == tracked.route.decode || node.handle == tracked.route.prefill);
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
    const Error error = event.error.value_or(Error{
        event.finish == FinishReason::Cancelled ? ErrorCode::GrantRevoked : ErrorCode::Internal,
        "the node ended the request"});
    const bool has_begun = tracked->phase != Phase::Prefilling || tracked->decode_has_begun;
    return event.refused && !has_begun ? refused(*tracked, node, error)
                                       : node_reports(*tracked, node, error);
  }
  taken(*tracked);
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
    return breaks_the_wire(*tracked, node, pushed.error());
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
          prediction.on_computed(now - tracked.begun);
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
    all.queue = tracked.since_received(tracked.begun) + std::chrono::microseconds(figures.queue_us);
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
