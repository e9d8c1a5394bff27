#include "engine/speculation/ngram_index.h"

#include <algorithm>

namespace baton::engine {
namespace {

constexpr int kPlaces = 32;  // looked at for the longest match

}  // namespace

// Of the min_match tokens that end before `end`.
std::uint64_t NgramIndex::key_at(std::span<const TokenId> tokens, std::uint32_t end) const {
  std::uint64_t key = 0;
  for (std::uint32_t i = end - min_match_; i < end; ++i) {
    key = (key ^ static_cast<std::uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15ULL;
    key ^= key >> 32U;
  }
  return key;
}

// Every place but the end itself, which nothing follows yet.
void NgramIndex::learn(std::span<const TokenId> tokens) {
  before_.resize(tokens.size(), 0);
  for (std::uint32_t end = std::max(learned_, min_match_); end < tokens.size(); ++end) {
    std::uint32_t& last = last_[key_at(tokens, end)];
    before_[end] = last;
    last = end;
  }
  learned_ = static_cast<std::uint32_t>(tokens.size());
}

NgramIndex::Guess NgramIndex::guess(std::span<const TokenId> tokens, std::uint32_t most) {
  Guess best;
  learn(tokens);
  const auto size = static_cast<std::uint32_t>(tokens.size());
  if (size <= min_match_ || most == 0) {
    return best;
  }
  const auto found = last_.find(key_at(tokens, size));
  std::uint32_t from = 0;
  std::uint32_t end = found == last_.end() ? 0 : found->second;
  for (int place = 0; place < kPlaces && end != 0 && best.match < kLongest; ++place) {
    std::uint32_t match = 0;
    while (match < kLongest && match < end && tokens[end - 1 - match] == tokens[size - 1 - match]) {
      ++match;
    }
    if (match >= min_match_ && match > best.match) {
      best.match = match;
      from = end;
    }
    end = before_[end];
  }
  for (std::uint32_t i = 0; best.match > 0 && i < most; ++i) {
    const std::uint32_t at = from + i;
    best.tokens.push_back(at < size ? tokens[at] : best.tokens[at - size]);
  }
  return best;
}

}  // namespace baton::engine
