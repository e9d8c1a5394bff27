#include "decode_node/scheduler.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/speculation/draft_plan.h"

namespace baton::decode_node {
namespace {

double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

TokenEvent event_of(const engine::Sequence& sequence) {
  TokenEvent event;
  event.request = sequence.request().id;
  event.attempt = sequence.request().attempt;
  event.choice = sequence.request().choice;
  event.index = sequence.num_output();
  return event;
}

}  // namespace

Scheduler::Scheduler(Executor& executor,
                     node::StepEngine& steps,
                     engine::KvMemory& kv,
                     node::TokenStream& stream,
                     Probe& probe,
                     Options options,
                     std::function<void()> on_ended,
                     node::Grammars* grammars)
    : executor_(executor),
      steps_(steps),
      kv_(kv),
      stream_(stream),
      probe_(probe),
      options_(std::move(options)),
      on_ended_(std::move(on_ended)),
      grammars_(grammars) {}

std::uint32_t Scheduler::blocks_now(const Running& running) const {
  return kv_.layout().blocks_for(running.sequence->tokens().size());
}

bool Scheduler::may_grow(const Running& running) const {
  const engine::RequestSize& size = running.sequence->size();
  return running.sequence->table().num_blocks() <
         kv_.layout().blocks_for(std::max(size.context, size.max_stored));
}

std::uint32_t Scheduler::num_growing() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      running_, [this](const Running& running) { return may_grow(running); }));
}

std::uint32_t Scheduler::batch_limit() const {
  std::uint64_t context = 0;
  for (const Running& running : running_) {
    context += running.sequence->tokens().size();
  }
  return engine::largest_batch(
      options_.limits, cost_, context / std::max<std::size_t>(1, running_.size()));
}

void Scheduler::grow() {
  bool any_left = false;
  for (auto it = running_.begin(); it != running_.end();) {
    engine::BlockTable& table = it->sequence->table();
    const std::uint32_t needed = blocks_now(*it);
    if (needed <= table.num_blocks()) {
      ++it;
      continue;
    }
    if (auto leases = kv_.acquire(needed - table.num_blocks())) {
      table.append(std::move(*leases));
      ++it;
      continue;
    }
    const engine::BlockPool& pool = kv_.pool();
    if (running_.size() == 1 &&
        pool.count(engine::BlockUse::Granted) + pool.count(engine::BlockUse::Quarantined) > 0) {
      break;  // it waits: grants end, or become younger sequences
    }
    // There is one: this sequence itself may grow.
    const auto youngest = std::find_if(
        running_.rbegin(), running_.rend(), [this](const Running& r) { return may_grow(r); });
    const auto victim = std::prev(youngest.base());
    tell(*victim,
         {ErrorCode::Preempted, "node " + options_.node + " needs the blocks for older requests"});
    probe_.handed_back(ErrorCode::Preempted);
    const bool is_self = victim == it;
    const auto next = running_.erase(victim);
    it = is_self ? next : it;
    any_left = true;
  }
  if (any_left) {
    stream_.flush();
    ended();
  }
}

void Scheduler::add(Arrival arrival) {
  running_.push_back({.client = arrival.client,
                      .sequence = std::move(arrival.sequence),
                      .figures = std::move(arrival.figures),
                      .arrived = executor_.now()});
  Running& added = running_.back();
  added.number = ++num_added_;
  added.figures.node = options_.node;
  if (options_.drafts.max_tokens > 0) {
    added.drafter = std::make_unique<engine::Drafter>(options_.drafts);
  }
  const Duration left = arrival.deadline ? *arrival.deadline - executor_.now()
                                         : Duration(added.sequence->request().deadline);
  added.deadline = executor_.call_after(std::max(Duration::zero(), left), [this, &added] {
    hand_back_if([&added](const Running& running) { return &running == &added; },
                 {ErrorCode::Timeout, "the request's deadline has passed"});
  });
  engine::Sequence& sequence = *added.sequence;
  sequence.table().seal(
      kv_.index(), kv_.layout().block_tokens, sequence.tokens(), sequence.computed());
  if (arrival.first_token) {
    const FinishReason finish = sequence.accept(*arrival.first_token);
    if (finish != FinishReason::None) {
      report(added, event_of(sequence), finish);
      stream_.flush();
      running_.pop_back();
      ended();
      return;
    }
  }
  if (sequence.request().grammar.kind != Grammar::Kind::None) {
    make_grammar(added);
  }
  pump();
}

void Scheduler::expect(const Grammar& grammar) {
  if (grammars_ != nullptr) {
    grammars_->warm(grammar);
  }
}

void Scheduler::make_grammar(Running& running) {
  running.awaits_grammar = true;
  const engine::Sequence& sequence = *running.sequence;
  if (grammars_ == nullptr) {
    return grammar_made(
        running.number,
        fail(ErrorCode::InvalidArgument, "node " + options_.node + " takes no grammars"));
  }
  grammars_->make(sequence.request().grammar,
                  {sequence.output().begin(), sequence.output().end()},
                  [this, number = running.number, alive = std::weak_ptr<bool>(alive_)](
                      Result<std::shared_ptr<engine::GrammarMask>> made) {
                    if (!alive.expired()) {
                      grammar_made(number, std::move(made));
                    }
                  });
}

void Scheduler::grammar_made(std::uint64_t number,
                             Result<std::shared_ptr<engine::GrammarMask>> made) {
  if (!made) {
    return hand_back_if([number](const Running& running) { return running.number == number; },
                        made.error());
  }
  const auto found = std::ranges::find(running_, number, &Running::number);
  if (found != running_.end()) {
    found->sequence->set_grammar(std::move(*made));
    found->awaits_grammar = false;
    pump();
  }
}

void Scheduler::sit_out(Running& running, std::uint32_t count) {
  engine::Sequence& sequence = *running.sequence;
  if (count > 1) {
    sequence.advance_all(count - 1, {});
    sequence.table().seal(
        kv_.index(), kv_.layout().block_tokens, sequence.tokens(), sequence.computed());
  }
  probe_.sat_out();
  running.awaits_mask = true;
  grammars_->when_ready(sequence.grammar(),
                        [this, number = running.number, alive = std::weak_ptr<bool>(alive_)] {
                          if (alive.expired()) {
                            return;
                          }
                          const auto found = std::ranges::find(running_, number, &Running::number);
                          if (found != running_.end()) {
                            found->awaits_mask = false;
                            pump();
                          }
                        });
}

void Scheduler::pump() {
  if (steps_.is_busy()) {
    return;
  }
  grow();
  std::vector<engine::DecodeWish> wishes;
  for (Running& running : running_) {
    if (!running.awaits_grammar && !running.awaits_mask &&
        blocks_now(running) <= running.sequence->table().num_blocks()) {
      wishes.push_back({running.sequence.get(), running.last_turn});
    }
  }
  auto planned = engine::plan_decode(wishes, options_.limits, cost_);
  if (planned.empty()) {
    return;
  }
  draft(planned);
  Step step;
  for (const engine::PlannedSlice& slice : planned) {
    Running& running = running_of(*slice.sequence);
    running.in_step = true;
    running.last_turn = ++num_turns_;
    if (!std::exchange(running.has_started, true)) {
      running.figures.queue_us = node::to_us(executor_.now() - running.arrived);
    }
    running.figures.max_batch =
        std::max(running.figures.max_batch, static_cast<std::uint32_t>(planned.size()));
    if (slice.sequence->is_prefilling()) {
      ++running.figures.chunks;
    }
    if (slice.sequence->grammar() != nullptr && slice.count == slice.sequence->num_pending()) {
      grammars_->prepare(slice.sequence->grammar());
    }
    step.slices.push_back({&running, slice.count});
    step.drafts += static_cast<std::uint32_t>(slice.drafts.size()) + slice.wanted_drafts;
  }
  step.shape = engine::shape_of(planned);
  steps_.run(engine::to_step_plan(planned),
             nullptr,
             [this, step = std::move(step)](node::StepEngine::Outcome outcome) mutable {
               step_done(std::move(step), std::move(outcome));
             });
}

Scheduler::Running& Scheduler::running_of(const engine::Sequence& sequence) {
  return *std::ranges::find_if(
      running_, [&](const Running& running) { return running.sequence.get() == &sequence; });
}

std::uint32_t Scheduler::room_for_drafts(Running& running, std::uint32_t wanted) {
  engine::BlockTable& table = running.sequence->table();
  const auto known = static_cast<std::uint32_t>(running.sequence->tokens().size());
  const auto covered = [&] { return table.num_blocks() * kv_.layout().block_tokens - known; };
  // What a step needs anyway comes first: every sequence could still take a block.
  if (covered() < wanted && kv_.pool().free() > running_.size()) {
    if (auto leases = kv_.acquire(1)) {
      table.append(std::move(*leases));
    }
  }
  return std::min(wanted, covered());
}

void Scheduler::draft(std::vector<engine::PlannedSlice>& planned) {
  if (options_.drafts.max_tokens == 0) {
    return;
  }
  std::vector<engine::DraftOffer> offers(planned.size());
  std::size_t sequences = 0;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const engine::Sequence& sequence = *planned[i].sequence;
    sequences += planned[i].count == sequence.num_pending() ? 1 : 0;
    const std::uint32_t most = sequence.max_drafts();
    if (most == 0 || (sequence.grammar() != nullptr && sequence.grammar()->is_hard())) {
      continue;
    }
    engine::Drafter& drafter = *running_of(sequence).drafter;
    std::uint32_t tokens = std::min(most, drafter.offer(sequence.tokens()));
    if (sequence.grammar() != nullptr && options_.drafts.mode == engine::DraftMode::Ngram) {
      tokens = static_cast<std::uint32_t>(
          sequence.grammar()->count_accepted(drafter.tokens().first(tokens)));
    }
    offers[i] = {.tokens = tokens,
                 .chance = drafter.chance(),
                 .row_seconds = cost_.row_seconds(sequence.tokens().size())};
  }
  const auto counts = engine::plan_drafts(
      offers, sequences, cost_.predict(engine::shape_of(planned)), options_.drafts.step_seconds);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (counts[i] == 0) {
      continue;
    }
    Running& running = running_of(*planned[i].sequence);
    const std::uint32_t count = room_for_drafts(running, counts[i]);
    if (options_.drafts.mode == engine::DraftMode::Model) {
      planned[i].wanted_drafts = count;
      planned[i].number = running.number;
    } else {
      planned[i].drafts = running.drafter->tokens().first(count);
    }
  }
}

void Scheduler::step_done(Step step, node::StepEngine::Outcome outcome) {
  const double seconds = to_seconds(outcome.duration);
  pace_.observe(seconds);
  // A draft model may have had less to say.
  step.shape.rows -=
      step.drafts - std::reduce(outcome.result.drafted.begin(), outcome.result.drafted.end());
  cost_.observe(step.shape, seconds);
  probe_.step(seconds, step.slices.size());
  bool any_over = false;
  for (std::size_t i = 0; i < step.slices.size(); ++i) {
    Running& running = *step.slices[i].running;
    running.in_step = false;
    std::vector<engine::SampledToken> sampled = std::move(outcome.result.followed[i]);
    if (auto& first = outcome.result.sampled[i]) {
      sampled.insert(sampled.begin(), std::move(*first));
    }
    if (engine::wants_prompt_logprobs(running.sequence->request())) {
      running.scores.add(std::move(outcome.result.scored[i]));
    }
    const engine::Sequence& sequence = *running.sequence;
    if (sequence.is_prefilling()) {
      running.figures.compute_us += node::to_us(outcome.duration);
    }
    if (!running.is_over && sampled.empty() && sequence.grammar() != nullptr &&
        step.slices[i].count == sequence.num_pending()) {
      sit_out(running, step.slices[i].count);
    } else {
      running.is_over =
          running.is_over || apply(step.slices[i], sampled, outcome.result.drafted[i]);
    }
    if (!running.is_over && running.hand_back) {
      tell(running, *running.hand_back);
      running.is_over = true;
    }
    any_over = any_over || running.is_over;
  }
  stream_.flush();
  if (any_over) {
    running_.remove_if([](const Running& running) { return running.is_over; });
    ended();
  }
  pump();
}

bool Scheduler::apply(const StepSlice& slice,
                      const std::vector<engine::SampledToken>& sampled,
                      std::uint32_t drafted) {
  Running& running = *slice.running;
  engine::Sequence& sequence = *running.sequence;
  TokenEvent event = event_of(sequence);
  const auto [finish, taken] = sequence.advance_all(slice.count, sampled);
  sequence.table().seal(
      kv_.index(), kv_.layout().block_tokens, sequence.tokens(), sequence.computed());
  if (taken == 0) {
    return false;
  }
  if (const std::string_view fault = sequence.grammar_fault(); !fault.empty()) {
    const Error why{ErrorCode::InvalidArgument, std::string(fault)};
    tell(running, why);
    probe_.handed_back(why.code);
    return true;
  }
  for (std::uint32_t i = 0; i < taken; ++i) {
    event.tokens.push_back(sampled[i].token);
    if (sequence.request().sampling.num_logprobs >= 0) {
      event.logprobs.push_back({sampled[i].token, sampled[i].logprob});
      event.top_logprobs.push_back(sampled[i].top);
    }
  }
  if (running.drafter != nullptr) {
    running.drafter->learn(event.tokens, drafted);
  }
  running.figures.drafted_tokens += drafted;
  running.figures.accepted_tokens += taken - 1;
  probe_.drafted(drafted);
  probe_.accepted(taken - 1);
  probe_.tokens(taken);
  report(running, std::move(event), finish);
  return finish != FinishReason::None;
}

void Scheduler::report(Running& running, TokenEvent event, FinishReason finish) {
  event.finish = finish;
  if (finish != FinishReason::None) {
    event.figures = running.figures;
    probe_.ended(finish);
  }
  if (running.scores.empty()) {
    return stream_.add(running.client, event);
  }
  running.scores.put(event);
  stream_.send_now(running.client, event);  // nearly as large as a frame may be
}

void Scheduler::tell(const Running& running, const Error& why) {
  const GenerateRequest& request = running.sequence->request();
  stream_.add(running.client, node::error_event(request.id, request.attempt, request.choice, why));
}

template <class Match>
void Scheduler::drop_if(Match match) {
  const auto left = running_.remove_if([&](Running& running) {
    if (running.is_over || !match(running)) {
      return false;
    }
    probe_.cancelled(running.sequence->is_prefilling() ? CancelPhase::Prefilling
                                                       : CancelPhase::Decoding);
    running.is_over = running.in_step;  // the engine thread still reads it
    return !running.in_step;
  });
  if (left > 0) {
    ended();
    pump();  // others may wait for its blocks
  }
}

template <class Match>
void Scheduler::hand_back_if(Match match, const Error& why) {
  const auto left = running_.remove_if([&](Running& running) {
    if (running.is_over || running.hand_back || !match(running)) {
      return false;
    }
    probe_.handed_back(why.code);
    if (running.in_step) {
      running.hand_back = why;
      return false;
    }
    tell(running, why);
    return true;
  });
  stream_.flush();
  if (left > 0) {
    ended();
    pump();
  }
}

bool Scheduler::cancel(node::ClientId client, RequestId request, Attempt attempt) {
  bool found = false;
  drop_if([&](const Running& running) {
    const bool match = running.client == client && running.sequence->request().id == request &&
                       running.sequence->request().attempt == attempt;
    found = found || match;
    return match;
  });
  return found;
}

void Scheduler::cancel_client(node::ClientId client) {
  drop_if([client](const Running& running) { return running.client == client; });
}

void Scheduler::hand_back(const Error& why) {
  hand_back_if([](const Running&) { return true; }, why);
}

void Scheduler::end_all(const Error& why) {
  running_.remove_if([&](Running& running) {
    if (!running.is_over) {
      tell(running, why);
      probe_.handed_back(why.code);
    }
    running.is_over = true;
    return !running.in_step;
  });
  stream_.flush();
}

std::uint32_t Scheduler::num_queued_tokens() const {
  std::uint32_t tokens = 0;
  for (const Running& running : running_) {
    tokens += running.sequence->is_prefilling() ? running.sequence->num_pending() : 0;
  }
  return tokens;
}

void Scheduler::ended() {
  on_ended_();
}

}  // namespace baton::decode_node
