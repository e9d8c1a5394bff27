#include "engine/speculation/drafter.h"

#include <algorithm>

namespace baton::engine {
namespace {

constexpr std::array<double, 3> kFirstChances{0.3, 0.5, 0.7};
constexpr double kWeight = 0.15;    // of the newest comparison
constexpr double kRecovery = 0.01;  // of a model's lost trust, a step without a question

std::size_t kind_of(std::uint32_t match) {
  if (match >= 12) {
    return 2;
  }
  return match >= 6 ? 1 : 0;
}

}  // namespace

Drafter::Drafter(const DraftLimits& limits)
    : limits_(limits), index_(limits.min_match), chances_(kFirstChances) {}

std::uint32_t Drafter::offer(std::span<const TokenId> tokens) {
  if (limits_.mode == DraftMode::Model) {
    kind_ = 1;
    return limits_.max_tokens;
  }
  guess_ = index_.guess(tokens, limits_.max_tokens);
  kind_ = kind_of(guess_.match);
  return static_cast<std::uint32_t>(guess_.tokens.size());
}

void Drafter::note(bool is_right) {
  chances_[kind_] += kWeight * ((is_right ? 1.0 : 0.0) - chances_[kind_]);
}

void Drafter::learn(std::span<const TokenId> said, std::uint32_t drafted) {
  if (limits_.mode == DraftMode::Model) {
    for (std::size_t i = 1; i < said.size(); ++i) {
      note(true);
    }
    if (said.size() <= drafted) {
      note(false);
    }
    if (drafted == 0 && chances_[kind_] < kFirstChances[kind_]) {
      chances_[kind_] += kRecovery * (kFirstChances[kind_] - chances_[kind_]);
    }
    return;
  }
  const std::size_t count = std::min(said.size(), guess_.tokens.size());
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_right = guess_.tokens[i] == said[i];
    note(is_right);
    if (!is_right) {
      break;
    }
  }
  guess_ = {};
}

}  // namespace baton::engine
