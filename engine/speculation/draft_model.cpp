#include "engine/speculation/draft_model.h"

#include <algorithm>
#include <utility>

namespace baton::engine {

DraftModel::DraftModel(ModelRunner& runner,
                       std::unique_ptr<KvMemory> kv,
                       std::uint32_t chunk_tokens)
    : runner_(runner), kv_(std::move(kv)), chunk_tokens_(chunk_tokens) {}

std::vector<std::vector<TokenId>> DraftModel::guess(const StepPlan& plan) {
  ++num_calls_;
  std::vector<Asking> asking = take(plan);
  std::vector<std::vector<TokenId>> guesses(plan.slices.size());
  if (asking.empty()) {
    return guesses;
  }
  read(asking, plan);
  while (extend(asking, plan)) {
  }
  for (const Asking& each : asking) {
    guesses[each.slice].assign(each.text.end() - each.guessed, each.text.end());
  }
  return guesses;
}

// All blocks of `tokens`, if need be those of sequences that are not in this call.
bool DraftModel::reserve(Known& known, std::size_t tokens) {
  const std::uint32_t needed = kv_->layout().blocks_for(tokens);
  while (known.blocks.size() < needed) {
    auto leases = kv_->acquire(needed - static_cast<std::uint32_t>(known.blocks.size()));
    if (leases) {
      for (BlockLease& lease : *leases) {
        known.blocks.push_back(lease.id());
        known.leases.push_back(std::move(lease));
      }
      break;
    }
    const auto oldest = std::ranges::min_element(
        known_, {}, [](const auto& entry) { return entry.second.last_call; });
    if (oldest->second.last_call == num_calls_) {
      return false;
    }
    known_.erase(oldest);
  }
  return true;
}

std::vector<DraftModel::Asking> DraftModel::take(const StepPlan& plan) {
  std::vector<Asking> asking;
  for (std::size_t i = 0; i < plan.slices.size(); ++i) {
    const SequenceSlice& slice = plan.slices[i];
    const std::size_t size = slice.prompt.size() + slice.output.size();
    if (slice.wanted_drafts == 0 || size + slice.wanted_drafts > runner_.info().context_length) {
      continue;
    }
    Known& known = known_[slice.sequence];
    known.last_call = num_calls_;
    if (!reserve(known, size + slice.wanted_drafts)) {
      known_.erase(slice.sequence);  // what it holds may be enough for another
      continue;
    }
    Asking& each = asking.emplace_back();
    each.slice = i;
    each.known = &known;
    each.sampling = *slice.sampling;
    each.sampling.num_logprobs = -1;
    each.text.reserve(size + slice.wanted_drafts);
    each.text.assign(slice.prompt.begin(), slice.prompt.end());
    each.text.insert(each.text.end(), slice.output.begin(), slice.output.end());
    each.prompt = slice.prompt.size();
    each.wanted = slice.wanted_drafts;
    // What was guessed wrong is written over; the last token is always computed anew.
    const auto [stored, same] = std::ranges::mismatch(known.tokens, each.text);
    known.tokens.erase(stored, known.tokens.end());
    known.tokens.resize(std::min(known.tokens.size(), size - 1));
  }
  return asking;
}

SequenceSlice DraftModel::slice_of(const Asking& asking,
                                   const SequenceSlice& slice,
                                   std::size_t count) const {
  SequenceSlice out;
  const std::size_t first = asking.known->tokens.size();
  out.tokens = std::span(asking.text).subspan(first, count);
  out.first_position = static_cast<std::uint32_t>(first);
  out.blocks = asking.known->blocks;
  out.sample = first + count == asking.text.size();
  out.sampling = &asking.sampling;
  out.choice = slice.choice;
  out.prompt = std::span(asking.text).first(asking.prompt);
  out.output = std::span(asking.text).subspan(asking.prompt);
  out.barred = slice.barred;
  return out;
}

void DraftModel::read(std::vector<Asking>& asking, const StepPlan& plan) {
  std::uint32_t budget = chunk_tokens_;
  StepPlan step;
  std::vector<Asking*> readers;
  for (Asking& each : asking) {
    const std::size_t pending = each.text.size() - each.known->tokens.size();
    const bool is_chunk = pending > kSteady;
    const std::size_t count = is_chunk ? std::min<std::size_t>(pending, budget) : pending;
    if (count == 0) {
      continue;
    }
    budget -= is_chunk ? static_cast<std::uint32_t>(count) : 0;
    step.slices.push_back(slice_of(each, plan.slices[each.slice], count));
    readers.push_back(&each);
  }
  if (readers.empty()) {
    return;
  }
  const StepResult result = runner_.run(step, kv_->arena(), nullptr);
  for (std::size_t i = 0; i < readers.size(); ++i) {
    Asking& each = *readers[i];
    const auto read = step.slices[i].tokens;
    each.known->tokens.insert(each.known->tokens.end(), read.begin(), read.end());
    if (const auto& sampled = result.sampled[i]) {
      each.is_ready = true;
      each.text.push_back(sampled->token);
      each.guessed = 1;
    }
  }
}

bool DraftModel::extend(std::vector<Asking>& asking, const StepPlan& plan) {
  StepPlan step;
  std::vector<Asking*> going;
  for (Asking& each : asking) {
    if (each.is_ready && each.guessed < each.wanted) {
      step.slices.push_back(slice_of(each, plan.slices[each.slice], 1));
      going.push_back(&each);
    }
  }
  if (going.empty()) {
    return false;
  }
  const StepResult result = runner_.run(step, kv_->arena(), nullptr);
  for (std::size_t i = 0; i < going.size(); ++i) {
    Asking& each = *going[i];
    each.known->tokens.push_back(each.text.back());
    each.text.push_back(result.sampled[i]->token);
    ++each.guessed;
  }
  return true;
}

StepResult SpeculativeRunner::run(const StepPlan& plan,
                                  const KvArenaView& arena,
                                  const LayerDone& layer_done) {
  const std::vector<std::vector<TokenId>> guesses = draft_.guess(plan);
  StepPlan drafted = plan;
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    if (!guesses[i].empty()) {
      drafted.slices[i].drafts = guesses[i];
    }
  }
  return target_.run(drafted, arena, layer_done);
}

}  // namespace baton::engine
