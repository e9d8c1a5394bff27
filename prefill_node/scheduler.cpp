#include "prefill_node/scheduler.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace baton::prefill_node {
namespace {

// A prompt that has waited so long is overtaken by no more urgent one.
constexpr std::chrono::seconds kPatience{10};

}  // namespace

Scheduler::Scheduler(Parts parts, engine::PrefillLimits limits)
    : parts_(std::move(parts)), limits_(limits) {}

void Scheduler::add(node::ClientId client,
                    GenerateRequest request,
                    const engine::RequestSize& size,
                    KvGrant grant,
                    bool is_bound) {
  Job& job = jobs_.emplace_back();
  job.number = next_number_++;
  job.client = client;
  job.id = request.id;
  job.attempt = request.attempt;
  job.choice = request.choice;
  job.size = size;
  const auto deadline = request.deadline;
  job.due = parts_.executor.now() + deadline;
  job.request = std::move(request);
  job.arrived = parts_.executor.now();
  job.figures.node = parts_.node;
  job.figures.prefix_blocks_held = grant.prefix_blocks;
  job.sender = std::make_unique<KvSender>(
      parts_.executor,
      parts_.transport,
      parts_.links,
      parts_.kv.layout(),
      std::move(grant),
      size.context,
      parts_.digest,
      KvSender::Handlers{
          .on_committed = [this,
                           number = job.number](std::uint64_t bytes) { committed(number, bytes); },
          .on_failed = [this, number = job.number](const Error& why) { failed(number, why); }});
  job.sender->start(is_bound);
  job.deadline = parts_.executor.call_after(deadline, [this, number = job.number] {
    const Error why{ErrorCode::Timeout, "the request's deadline has passed"};
    end_if([number](const Job& job) { return job.number == number; }, why.message, &why);
  });
  if (job.request.grammar.kind != Grammar::Kind::None) {
    make_grammar(job);
  }
  pump();
}

void Scheduler::make_grammar(Job& job) {
  job.awaits_grammar = true;
  if (parts_.grammars == nullptr) {
    return grammar_made(
        job.number, fail(ErrorCode::InvalidArgument, "node " + parts_.node + " takes no grammars"));
  }
  parts_.grammars->make(job.request.grammar,
                        job.request.output,
                        [this, number = job.number, alive = std::weak_ptr<bool>(alive_)](
                            Result<std::shared_ptr<engine::GrammarMask>> made) {
                          if (!alive.expired()) {
                            grammar_made(number, std::move(made));
                          }
                        });
}

void Scheduler::grammar_made(std::uint64_t number,
                             Result<std::shared_ptr<engine::GrammarMask>>&& made) {
  if (!made) {
    end_if([number](const Job& job) { return job.number == number; },
           made.error().message,
           &made.error());
    return;
  }
  if (Job* job = find(number)) {
    job->grammar = std::move(*made);
    job->awaits_grammar = false;
    pump();
  }
}

bool Scheduler::admit(Job& job) {
  const std::uint32_t block_tokens = parts_.kv.layout().block_tokens;
  // The last token is always computed: its result gives the first new one. So is every token whose
  // log-probability is asked for.
  const bool scores_prompt = engine::wants_prompt_logprobs(job.request);
  engine::PrefixRef prefix = parts_.kv.index().find(
      engine::context_of(job.request), scores_prompt ? 0 : (job.size.context - 1) / block_tokens);
  const std::uint32_t held = prefix.num_blocks();
  auto own = parts_.kv.acquire(parts_.kv.layout().blocks_for(job.size.context) - held);
  if (!own) {
    return false;
  }
  if (!job.has_pulled && !job.has_looked) {  // else it is the second time
    parts_.kv.index().count_use(prefix, job.size.context);
  }
  job.figures.cached_tokens = held * block_tokens;
  job.figures.queue_us = node::to_us(parts_.executor.now() - job.arrived);
  if (!scores_prompt && restore(job, prefix, *own)) {
    return true;
  }
  const std::uint32_t worth =
      job.has_pulled || scores_prompt
          ? 0
          : parts_.pulls.count_worth(
                job.sender->grant(), held, job.size.context, tokens_per_second_);
  if (worth > 0) {
    pull(job, std::move(prefix), std::move(*own), worth);
  } else {
    begin(job, std::move(prefix), std::move(*own), held * block_tokens);
  }
  return true;
}

bool Scheduler::should_wait_for_twin(const Job& job) const {
  if (!parts_.kv.index().enabled() || engine::wants_prompt_logprobs(job.request)) {
    return false;
  }
  const std::uint32_t block_tokens = parts_.kv.layout().block_tokens;
  const auto shared = static_cast<std::uint32_t>(job.request.prompt.size() - 1) / block_tokens;
  return std::ranges::any_of(jobs_, [&](const Job& other) {
    return other.state == JobState::Computing && !other.end_reason &&
           other.sequence->computed() < shared * block_tokens &&
           other.sequence->request().prompt == job.request.prompt;
  });
}

void Scheduler::pull(Job& job,
                     engine::PrefixRef prefix,
                     std::vector<engine::BlockLease> own,
                     std::uint32_t count) {
  job.state = JobState::Pulling;
  job.has_pulled = true;
  const auto middle = own.begin() + count;
  job.rest.assign(std::move_iterator(middle), std::move_iterator(own.end()));
  own.erase(middle, own.end());
  const std::uint32_t held = prefix.num_blocks();
  job.prefix = std::move(prefix);
  job.pull = parts_.pulls.start(job.sender->grant(),
                                engine::context_of(job.request),
                                held,
                                std::move(own),
                                tokens_per_second_,
                                [this, number = job.number](Result<Pulls::Pulled> result) {
                                  pulled(number, std::move(result));
                                });
}

void Scheduler::pulled(std::uint64_t number, Result<Pulls::Pulled> result) {
  Job* job = find(number);
  if (job == nullptr || job->state != JobState::Pulling) {
    return;
  }
  if (result) {
    job->figures.pulled_tokens = result->count * parts_.kv.layout().block_tokens;
    go_on(*job, std::move(result->blocks), result->count);
  } else {
    try_again(*job);  // its blocks are in quarantine
  }
}

bool Scheduler::restore(Job& job, engine::PrefixRef& prefix, std::vector<engine::BlockLease>& own) {
  if (parts_.tier == nullptr || std::exchange(job.has_looked, true)) {
    return false;
  }
  const std::vector<TokenId> context = engine::context_of(job.request);
  const std::uint32_t most = (job.size.context - 1) / parts_.kv.layout().block_tokens;
  const std::uint32_t count = parts_.tier->look(prefix, context, most - prefix.num_blocks());
  if (count == 0) {
    return false;
  }
  job.state = JobState::Restoring;
  const auto middle = own.begin() + count;
  job.rest.assign(std::move_iterator(middle), std::move_iterator(own.end()));
  own.erase(middle, own.end());
  job.prefix = std::move(prefix);
  job.load = parts_.tier->load(job.prefix,
                               context,
                               std::move(own),
                               [this, number = job.number](engine::FileTier::Loaded loaded) {
                                 restored(number, std::move(loaded));
                               });
  return true;
}

void Scheduler::restored(std::uint64_t number, engine::FileTier::Loaded loaded) {
  Job* job = find(number);
  if (job == nullptr || job->state != JobState::Restoring) {
    return;
  }
  if (loaded.count > 0) {
    job->figures.cached_tokens += loaded.count * parts_.kv.layout().block_tokens;
    go_on(*job, std::move(loaded.blocks), loaded.count);
  } else {
    loaded.blocks.clear();
    try_again(*job);
  }
}

void Scheduler::go_on(Job& job, std::vector<engine::BlockLease> blocks, std::uint32_t count) {
  engine::PrefixRef prefix = std::move(job.prefix);
  std::ranges::move(job.rest, std::back_inserter(blocks));
  job.rest.clear();
  const std::uint32_t filled = prefix.num_blocks() + count;
  begin(job, std::move(prefix), std::move(blocks), filled * parts_.kv.layout().block_tokens);
  pump();
}

void Scheduler::try_again(Job& job) {
  job.prefix.reset();
  job.rest.clear();
  job.state = JobState::Waiting;
  pump();
}

void Scheduler::begin(Job& job,
                      engine::PrefixRef prefix,
                      std::vector<engine::BlockLease> own,
                      std::uint32_t computed) {
  parts_.probe.request(job.size.context, job.figures.cached_tokens);
  job.sequence =
      std::make_unique<engine::Sequence>(std::move(job.request),
                                         job.size,
                                         engine::BlockTable(std::move(prefix), std::move(own)),
                                         computed);
  job.state = JobState::Computing;
  engine::Sequence& sequence = *job.sequence;
  sequence.set_grammar(job.grammar);
  sequence.table().seal(
      parts_.kv.index(), parts_.kv.layout().block_tokens, sequence.tokens(), computed);
  job.sender->computed(sequence.table().ids(), computed);
}

void Scheduler::pump() {
  if (parts_.steps.is_busy()) {
    return;
  }
  for (Job& job : jobs_) {
    // In order of arrival: a large request is not overtaken for ever by small ones.
    if (job.state == JobState::Waiting && !job.awaits_grammar && !should_wait_for_twin(job) &&
        !admit(job)) {
      break;
    }
  }
  std::vector<engine::PrefillWish> wishes;
  for (Job& job : jobs_) {
    if (job.state == JobState::Computing) {
      wishes.push_back({job.sequence.get(), job.arrived, job.due});
    }
  }
  const auto planned =
      engine::plan_prefill(engine::by_urgency(wishes, parts_.executor.now(), kPatience), limits_);
  if (!planned.empty()) {
    run_step(planned);
  }
}

void Scheduler::run_step(const std::vector<engine::PlannedSlice>& planned) {
  std::vector<StepSlice> slices;
  std::vector<LayerSend> sends;
  for (const engine::PlannedSlice& slice : planned) {
    const auto job = std::ranges::find_if(
        jobs_, [&](const Job& j) { return j.sequence.get() == slice.sequence; });
    job->in_step = true;
    ++job->figures.chunks;
    job->figures.max_batch =
        std::max(job->figures.max_batch, static_cast<std::uint32_t>(planned.size()));
    slices.push_back({&*job, slice.count});
    const engine::Sequence& sequence = *slice.sequence;
    if (sequence.grammar() != nullptr && slice.count == sequence.num_pending()) {
      parts_.grammars->prepare(sequence.grammar());
    }
    if (auto send =
            job->sender->plan_step(sequence.table().ids(), sequence.computed() + slice.count)) {
      sends.push_back(std::move(*send));
    }
  }
  parts_.steps.run(
      engine::to_step_plan(planned),
      [sends = std::move(sends)](std::uint32_t layer) {
        for (const LayerSend& send : sends) {
          send.post(layer);
        }
      },
      [this, slices = std::move(slices)](node::StepEngine::Outcome outcome) {
        step_done(slices, std::move(outcome));
      });
}

void Scheduler::step_done(const std::vector<StepSlice>& slices, node::StepEngine::Outcome outcome) {
  const double seconds = std::chrono::duration<double>(outcome.duration).count();
  std::uint32_t tokens = 0;
  for (const StepSlice& slice : slices) {
    tokens += slice.count;
    slice.job->figures.compute_us += node::to_us(outcome.duration);
  }
  parts_.probe.step(seconds, slices.size(), tokens);
  if (seconds > 0) {
    const double rate = tokens / seconds;
    tokens_per_second_ = tokens_per_second_ == 0 ? rate : 0.8 * tokens_per_second_ + 0.2 * rate;
  }
  for (std::size_t i = 0; i < slices.size(); ++i) {
    Job& job = *slices[i].job;
    job.in_step = false;
    if (job.end_reason) {
      end(job, *job.end_reason);
    } else {
      apply(slices[i], outcome.result, i);
    }
  }
  parts_.stream.flush();
  pump();
}

void Scheduler::apply(const StepSlice& slice, engine::StepResult& result, std::size_t i) {
  Job& job = *slice.job;
  const std::optional<engine::SampledToken>& sampled = result.sampled[i];
  if (engine::wants_prompt_logprobs(job.sequence->request())) {
    job.scores.add(std::move(result.scored[i]));
  }
  engine::Sequence& sequence = *job.sequence;
  const FinishReason finish = sequence.advance(slice.count, sampled ? &*sampled : nullptr);
  sequence.table().seal(
      parts_.kv.index(), parts_.kv.layout().block_tokens, sequence.tokens(), sequence.computed());
  job.sender->computed(sequence.table().ids(), sequence.computed());
  if (const std::string_view fault = sequence.grammar_fault(); !fault.empty()) {
    failed(job.number, {ErrorCode::InvalidArgument, std::string(fault)});
  } else if (sampled) {
    first_token(job, *sampled, finish);
  }
}

void Scheduler::first_token(Job& job, const engine::SampledToken& sampled, FinishReason finish) {
  TokenEvent event;
  event.request = job.id;
  event.attempt = job.attempt;
  event.choice = job.choice;
  event.index = job.sequence->num_output() - 1;
  event.tokens = {sampled.token};
  if (job.sequence->request().sampling.num_logprobs >= 0) {
    event.logprobs = {{sampled.token, sampled.logprob}};
    event.top_logprobs = {sampled.top};
  }
  event.finish = finish;
  event.figures = job.figures;
  if (job.scores.empty()) {
    parts_.stream.add(job.client, event);
  } else {
    job.scores.put(event);
    parts_.stream.send_now(job.client, event);  // nearly as large as a frame may be
  }
  if (finish != FinishReason::None) {
    end(job, "the first token ended the request");
    return;
  }
  job.state = JobState::Delivering;
  job.sender->commit({.choice = job.choice,
                      .first_token = sampled.token,
                      .first_index = event.index,
                      .token_count = job.size.context});
}

void Scheduler::committed(std::uint64_t number, std::uint64_t bytes) {
  if (find(number) != nullptr) {
    parts_.probe.committed(bytes);
    remove(number);
  }
}

void Scheduler::failed(std::uint64_t number, const Error& why) {
  Job* job = find(number);
  if (job == nullptr || job->state == JobState::Ending || job->end_reason) {
    return;
  }
  parts_.log.warn("request {:016x}: {}", job->id.value, why.message);
  parts_.probe.failed(why.code);
  parts_.stream.send_now(job->client, node::error_event(job->id, job->attempt, job->choice, why));
  end(*job, why.message);
}

void Scheduler::end(Job& job, const std::string& reason) {
  if (job.in_step) {
    job.end_reason = reason;  // the engine thread still reads and sends its blocks
    return;
  }
  if (job.state == JobState::Pulling) {
    parts_.pulls.cancel(job.pull);
  } else if (job.state == JobState::Restoring) {
    parts_.tier->cancel(job.load);
  }
  job.state = JobState::Ending;
  job.sender->abort(reason, [this, number = job.number] { remove(number); });
}

void Scheduler::remove(std::uint64_t number) {
  // Later, not now: this runs inside a callback of the job's sender.
  parts_.executor.post([this, number, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) {
      return;
    }
    jobs_.remove_if([number](const Job& job) { return job.number == number; });
    pump();
    parts_.on_ended();
  });
}

Scheduler::Job* Scheduler::find(std::uint64_t number) {
  const auto found =
      std::ranges::find_if(jobs_, [number](const Job& job) { return job.number == number; });
  return found == jobs_.end() ? nullptr : &*found;
}

CancelPhase Scheduler::phase_of(const Job& job) {
  switch (job.state) {
    case JobState::Waiting:
    case JobState::Restoring:
    case JobState::Pulling:
      return CancelPhase::Waiting;
    case JobState::Computing:
      return CancelPhase::Computing;
    default:
      return CancelPhase::Delivering;
  }
}

template <class Match>
bool Scheduler::end_if(Match match, const std::string& reason, const Error* tell) {
  bool any = false;
  for (Job& job : jobs_) {
    const bool is_over = job.state == JobState::Ending || job.end_reason.has_value() ||
                         job.sender->state() == SendState::Done;
    if (is_over || !match(job)) {
      continue;
    }
    any = true;
    if (tell == nullptr) {
      parts_.probe.cancelled(phase_of(job));
    } else {
      parts_.probe.failed(tell->code);
      parts_.stream.add(job.client, node::error_event(job.id, job.attempt, job.choice, *tell));
    }
    end(job, reason);
  }
  parts_.stream.flush();
  return any;
}

bool Scheduler::cancel(node::ClientId client, RequestId request, Attempt attempt) {
  return end_if(
      [&](const Job& job) {
        return job.client == client && job.id == request && job.attempt == attempt;
      },
      "the gateway cancelled the request",
      nullptr);
}

void Scheduler::cancel_client(node::ClientId client) {
  end_if([client](const Job& job) { return job.client == client; }, "the gateway is gone", nullptr);
}

void Scheduler::end_all(const Error& why) {
  end_if([](const Job&) { return true; }, why.message, &why);
}

std::uint32_t Scheduler::num_uncomputed(node::ClientId client) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(jobs_, [client](const Job& job) {
    return job.client == client &&
           (job.state == JobState::Waiting || job.state == JobState::Restoring ||
            job.state == JobState::Pulling || job.state == JobState::Computing);
  }));
}

std::uint32_t Scheduler::num_queued_tokens() const {
  std::uint32_t tokens = 0;
  for (const Job& job : jobs_) {
    if (job.state == JobState::Waiting || job.state == JobState::Restoring ||
        job.state == JobState::Pulling) {
      tokens += job.size.context - job.figures.cached_tokens;
    } else if (job.state == JobState::Computing) {
      tokens += job.sequence->num_pending();
    }
  }
  return tokens;
}

std::size_t Scheduler::num_waiting() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(jobs_, [](const Job& job) { return job.state == JobState::Waiting; }));
}

}  // namespace baton::prefill_node
