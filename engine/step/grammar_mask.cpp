#include "engine/step/grammar_mask.h"

#include <utility>

namespace baton::engine {
namespace {

// What the masks of an output may take. A usual one takes microseconds, and milliseconds where it
// is the first of its kind.
constexpr std::chrono::milliseconds kAllowance{2'000};
constexpr std::chrono::milliseconds kAllowanceEach{5};
// For a mask that is being made: less than a step.
constexpr std::chrono::milliseconds kPatience{1};

}  // namespace

GrammarMask::GrammarMask(std::shared_ptr<const CompiledGrammar> grammar,
                         std::chrono::nanoseconds quick)
    : quick_(quick),
      is_hard_(quick.count() < 0),
      matcher_(std::move(grammar)),
      words_(matcher_.num_words()) {}

std::unique_lock<std::mutex> GrammarMask::quiet() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return state_ != State::Filling; });
  return lock;
}

bool GrammarMask::accept(TokenId token) {
  const auto lock = quiet();
  state_ = State::None;
  return matcher_.accept(token);
}

std::size_t GrammarMask::count_accepted(std::span<const TokenId> drafts) {
  const auto lock = quiet();
  return matcher_.count_accepted(drafts);
}

void GrammarMask::want() {
  const auto lock = quiet();
  if (state_ != State::Ready) {
    state_ = State::Wanted;
  }
}

bool GrammarMask::is_ready() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Ready;
}

bool GrammarMask::is_hard() const {
  const std::lock_guard lock(mutex_);
  return is_hard_;
}

void GrammarMask::fill() {
  is_open_ = !fill_into(words_);
  const std::lock_guard lock(mutex_);
  is_hard_ = last_ > quick_;
  state_ = State::Ready;
  filled_.notify_all();
}

bool GrammarMask::fill_into(std::span<std::uint32_t> words) {
  const auto start = std::chrono::steady_clock::now();
  const bool is_masked = matcher_.fill(words);
  last_ = std::chrono::steady_clock::now() - start;
  spent_ += last_;
  ++num_masks_;
  if (matcher_.is_stuck()) {
    fault_ = "the request's grammar allows no token to go on, or in too many ways";
  } else if (spent_ > kAllowance + num_masks_ * kAllowanceEach) {
    fault_ = "the request's grammar is too ambiguous: finding the tokens it allows takes too long";
  }
  return is_masked;
}

void GrammarMask::fill_wanted() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::Wanted) {
      return;
    }
    state_ = State::Filling;
  }
  fill();
}

bool GrammarMask::is_late() {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, kPatience, [this] { return state_ != State::Filling; });
  return state_ == State::Filling || (state_ == State::Wanted && is_hard_);
}

std::span<const std::uint32_t> GrammarMask::allowed(std::span<const TokenId> drafts) {
  bool is_mine = false;
  {
    const auto lock = quiet();
    is_mine = state_ != State::Ready;
    state_ = is_mine ? State::Filling : State::Ready;
  }
  if (is_mine) {
    fill();
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
