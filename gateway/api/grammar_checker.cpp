#include "gateway/api/grammar_checker.h"

#include <utility>

#include "engine/grammar/grammar.h"

namespace baton::gateway {
namespace {

std::string key_of(const Grammar& grammar) {
  return std::to_string(static_cast<int>(grammar.kind)) + ":" + grammar.text;
}

}  // namespace

Status GrammarChecker::check(const Grammar& grammar) {
  std::string key = key_of(grammar);
  {
    const std::lock_guard lock(mutex_);
    if (known_.contains(key)) {
      return {};
    }
  }
  BATON_TRY(engine::check_grammar(grammar));
  const std::lock_guard lock(mutex_);
  if (bytes_ + key.size() > memory_bytes_) {
    known_.clear();
    bytes_ = 0;
  }
  bytes_ += known_.contains(key) ? 0 : key.size();
  known_.insert(std::move(key));
  return {};
}

}  // namespace baton::gateway
