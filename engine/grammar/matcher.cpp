#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "engine/grammar/compiled_grammar.h"

namespace baton::engine {

std::size_t count_places(const xgrammar::GrammarMatcher& matcher) {
  // The library tells it in a print of the last step alone, a line for each place.
  const std::string print = matcher._DebugPrintInternalState();
  const auto lines = static_cast<std::size_t>(std::ranges::count(print, '\n'));
  return lines - std::min<std::size_t>(lines, 1);
}

struct GrammarMatcher::Impl {
  const std::shared_ptr<const CompiledGrammar> grammar;
  xgrammar::GrammarMatcher matcher;
  std::size_t num_words = 0;
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
    : impl_(new Impl{.grammar = grammar,
                     .matcher = xgrammar::GrammarMatcher(grammar->impl().grammar),
                     .num_words = static_cast<std::size_t>(xgrammar::GetBitmaskSize(
                         grammar->impl().grammar.GetTokenizerInfo().GetVocabSize()))}) {}
GrammarMatcher::~GrammarMatcher() = default;

std::size_t GrammarMatcher::num_words() const {
  return impl_->num_words;
}

bool GrammarMatcher::is_terminated() const {
  return impl_->matcher.IsTerminated();
}

bool GrammarMatcher::accept(TokenId token) {
  try {
    return impl_->matcher.AcceptToken(token);
  } catch (const std::exception&) {
    return false;
  }
}

void GrammarMatcher::rollback(std::size_t count) {
  if (count > 0) {
    impl_->matcher.Rollback(static_cast<int>(count));
  }
}

std::size_t GrammarMatcher::count_accepted(std::span<const TokenId> tokens) {
  std::size_t count = 0;
  while (count < tokens.size() && accept(tokens[count])) {
    ++count;
  }
  rollback(count);
  return count;
}

bool GrammarMatcher::fill(std::span<std::uint32_t> words) {
  BATON_CHECK(words.size() == num_words(), "a mask is a vocabulary long");
  is_stuck_ = false;
  if (!is_terminated()) {
    std::int64_t shape = static_cast<std::int64_t>(words.size());
    DLTensor tensor{.data = words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    try {
      if (count_places(impl_->matcher) <= impl_->grammar->impl().most_places) {
        if (!impl_->matcher.FillNextTokenBitmask(&tensor)) {
          return false;
        }
        if (std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; })) {
          return true;
        }
      }
    } catch (const std::exception&) {
      // As if it allowed nothing.
    }
    is_stuck_ = true;
  }
  std::ranges::fill(words, 0U);
  for (const int token : impl_->matcher.GetStopTokenIds()) {
    words[static_cast<std::size_t>(token) / 32] |= 1U << (static_cast<unsigned>(token) % 32);
  }
  return true;
}

}  // namespace baton::engine
