// The inside of a CompiledGrammar, for this folder alone.
#pragma once

#include <xgrammar/xgrammar.h>

#include "engine/grammar/grammar.h"

namespace baton::engine {

// Places in a grammar where an output may stand at once. Finding what may come next takes time for
// each, and whoever waits for it waits with a whole batch. A schema has many where it has many
// optional properties, which are told apart by their first letters; free rules may have many that
// all go on with the same letter, which costs their square.
constexpr std::size_t most_places(Grammar::Kind kind) {
  return kind == Grammar::Kind::Regex || kind == Grammar::Kind::Ebnf ? 128 : 512;
}
std::size_t count_places(const xgrammar::GrammarMatcher& matcher);

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
  std::size_t bytes = 0;
  std::size_t most_places = 0;
};

}  // namespace baton::engine
