#include "decode_node/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace baton::decode_node {
namespace {

std::uint64_t to_us(Duration duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

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
                     engine::DecodeLimits limits,
                     NodeName node,
                     std::function<void()> on_ended)
    : executor_(executor),
      steps_(steps),
      kv_(kv),
      stream_(stream),
      probe_(probe),
      limits_(limits),
      node_(std::move(node)),
      on_ended_(std::move(on_ended)) {}

void Scheduler::add(Arrival arrival) {
  running_.push_back({.client = arrival.client,
                      .sequence = std::move(arrival.sequence),
                      .figures = std::move(arrival.figures),
                      .arrived = executor_.now()});
  Running& added = running_.back();
  added.figures.node = node_;
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
  pump();
}

void Scheduler::pump() {
  if (steps_.is_busy() || running_.empty()) {
    return;
  }
  std::vector<engine::Sequence*> sequences;
  for (Running& running : running_) {
    sequences.push_back(running.sequence.get());
  }
  const auto planned = engine::plan_decode(sequences, limits_);
  if (planned.empty()) {
    return;
  }
  std::vector<StepSlice> slices;
  for (const engine::PlannedSlice& slice : planned) {
    const auto running = std::ranges::find_if(
        running_, [&](const Running& r) { return r.sequence.get() == slice.sequence; });
    running->in_step = true;
    if (!std::exchange(running->has_started, true)) {
      running->figures.queue_us = to_us(executor_.now() - running->arrived);
    }
    running->figures.max_batch =
        std::max(running->figures.max_batch, static_cast<std::uint32_t>(planned.size()));
    if (slice.sequence->is_prefilling()) {
      ++running->figures.chunks;
    }
    slices.push_back({&*running, slice.count});
  }
  steps_.run(engine::to_step_plan(planned),
             nullptr,
             [this, slices = std::move(slices)](node::StepEngine::Outcome outcome) {
               step_done(slices, std::move(outcome));
             });
}

void Scheduler::step_done(const std::vector<StepSlice>& slices, node::StepEngine::Outcome outcome) {
  const double seconds = to_seconds(outcome.duration);
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  probe_.step(seconds, slices.size());
  bool any_over = false;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    slices[i].running->in_step = false;
    const bool over = slices[i].running->is_cancelled ||
                      apply(slices[i], outcome.result.sampled[i], outcome.duration);
    slices[i].running->is_cancelled = over;
    any_over = any_over || over;
  }
  stream_.flush();
  if (any_over) {
    running_.remove_if([](const Running& running) { return running.is_cancelled; });
    ended();
  }
  pump();
}

bool Scheduler::apply(const StepSlice& slice,
                      const std::optional<engine::SampledToken>& sampled,
                      Duration duration) {
  Running& running = *slice.running;
  engine::Sequence& sequence = *running.sequence;
  running.figures.compute_us += to_us(duration);
  TokenEvent event = event_of(sequence);
  const FinishReason finish = sequence.advance(slice.count, sampled ? &*sampled : nullptr);
  sequence.table().seal(
      kv_.index(), kv_.layout().block_tokens, sequence.tokens(), sequence.computed());
  if (!sampled) {
    return false;
  }
  event.tokens = {sampled->token};
  if (sequence.request().sampling.num_logprobs >= 0) {
    event.logprobs = {{sampled->token, sampled->logprob}};
    event.top_logprobs = {sampled->top};
  }
  probe_.token();
  report(running, std::move(event), finish);
  return finish != FinishReason::None;
}

void Scheduler::report(Running& running, TokenEvent event, FinishReason finish) {
  event.finish = finish;
  if (finish != FinishReason::None) {
    event.figures = running.figures;
    probe_.ended(finish);
  }
  stream_.add(running.client, event);
}

template <class Match>
void Scheduler::drop_if(Match match) {
  bool any = false;
  running_.remove_if([&](Running& running) {
    if (!match(running)) {
      return false;
    }
    if (running.is_cancelled) {
      return false;
    }
    probe_.ended(FinishReason::Cancelled);
    if (running.in_step) {
      running.is_cancelled = true;  // the engine thread still reads it; it goes when the step ends
      return false;
    }
    any = true;
    return true;
  });
  if (any) {
    ended();
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

void Scheduler::end_all(const Error& why) {
  drop_if([&](const Running& running) {
    if (!running.is_cancelled) {
      const GenerateRequest& request = running.sequence->request();
      stream_.add(running.client,
                  node::error_event(request.id, request.attempt, request.choice, why));
    }
    return true;
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
