#include "engine/step/grammar_mask.h"

#include <utility>

namespace baton::engine {
namespace {

// What the masks of an output may take. A usual one takes microseconds, and milliseconds where it
// is the first of its kind.
constexpr std::chrono::milliseconds kAllowance{2'000};
constexpr std::chrono::milliseconds kAllowanceEach{5};

}  // namespace

GrammarMask::GrammarMask(std::shared_ptr<const CompiledGrammar> grammar)
    : matcher_(std::move(grammar)), words_(matcher_.num_words()) {}

void GrammarMask::settle() {
  State state = State::Wanted;
  state_.compare_exchange_strong(state, State::None);
  while (state == State::Filling) {
    state_.wait(State::Filling);
    state = state_.load();
  }
  state_.store(State::None);
}

bool GrammarMask::accept(TokenId token) {
  settle();
  return matcher_.accept(token);
}

std::size_t GrammarMask::count_accepted(std::span<const TokenId> drafts) {
  settle();
  return matcher_.count_accepted(drafts);
}

void GrammarMask::want() {
  settle();
  state_.store(State::Wanted);
}

void GrammarMask::fill() {
  is_open_ = !fill_into(words_);
  state_.store(State::Ready);
  state_.notify_all();
}

bool GrammarMask::fill_into(std::span<std::uint32_t> words) {
  const auto start = std::chrono::steady_clock::now();
  const bool is_masked = matcher_.fill(words);
  spent_ += std::chrono::steady_clock::now() - start;
  ++num_masks_;
  if (matcher_.is_stuck()) {
    fault_ = "the request's grammar allows no token to go on, or in too many ways";
  } else if (spent_ > kAllowance + num_masks_ * kAllowanceEach) {
    fault_ = "the request's grammar is too ambiguous: finding the tokens it allows takes too long";
  }
  return is_masked;
}

void GrammarMask::fill_wanted() {
  State state = State::Wanted;
  if (state_.compare_exchange_strong(state, State::Filling)) {
    fill();
  }
}

std::span<const std::uint32_t> GrammarMask::allowed(std::span<const TokenId> drafts) {
  for (State state = state_.load(); state != State::Ready; state = state_.load()) {
    if (state == State::Filling) {
      state_.wait(State::Filling);
    } else if (state_.compare_exchange_strong(state, State::Filling)) {
      fill();
    }
  }
  if (drafts.empty()) {
    return is_open_ ? std::span<const std::uint32_t>() : words_;
  }
  std::size_t count = 0;
  while (count < drafts.size() && matcher_.accept(drafts[count])) {
    ++count;
  }
  draft_words_.resize(words_.size());
  const bool is_masked = fill_into(draft_words_);
  matcher_.rollback(count);
  return is_masked ? std::span<const std::uint32_t>(draft_words_)
                   : std::span<const std::uint32_t>();
}

}  // namespace baton::engine
