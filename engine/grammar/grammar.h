// Grammars for a model's output: JSON, a JSON schema, a regular expression, rules in EBNF, or a
// structural tag. A grammar is compiled against a vocabulary once, shared by every sequence that
// asks for it, and then says before each token which tokens may come next. Built on xgrammar, whose
// names stay inside this folder.
//
// What is refused is refused by name: a keyword of JSON schema that would be ignored is an error,
// since the answer would break it. JSON is written on one line, as `{"a": 1, "b": [2, 3]}`: free
// white space is where small models lose themselves.
//
// Thread: `check_grammar` and GrammarCompiler from any; a matcher has one user at a time. Failure:
// InvalidArgument with a sentence for the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/request.h"

namespace baton::engine {

// Whether a grammar is whole and understood; needs no vocabulary. Takes about as long as the text
// is large: a millisecond for a usual schema. REQUIRES: grammar.kind is not None.
Status check_grammar(const Grammar& grammar);

// Immutable.
class CompiledGrammar {
 public:
  struct Impl;
  explicit CompiledGrammar(std::unique_ptr<const Impl> impl);
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;
  ~CompiledGrammar();

  const Impl& impl() const { return *impl_; }
  std::size_t bytes() const;  // of memory, about

 private:
  const std::unique_ptr<const Impl> impl_;
};

struct GrammarLimits {
  std::size_t cache_bytes = std::size_t{64}
                            << 20;  // of compiled grammars kept for the next request
};

class GrammarCompiler {
 public:
  // `tokenizer`: the bytes of a TokenizerSpec; they outlive this object, and are read when the
  // first grammar comes. `vocab_size`: of the model's logits.
  GrammarCompiler(std::string_view tokenizer, std::uint32_t vocab_size, GrammarLimits limits = {});
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;
  ~GrammarCompiler();

  // Milliseconds for a grammar that is not known yet; the first also reads the vocabulary, which
  // takes some tenths of a second. Masks are made as outputs first need them. REQUIRES:
  // grammar.kind is not None.
  Result<std::shared_ptr<const CompiledGrammar>> compile(const Grammar& grammar);
  // Null when it is not compiled yet.
  std::shared_ptr<const CompiledGrammar> find(const Grammar& grammar);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Where one output stands in its grammar.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar);
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;
  ~GrammarMatcher();

  // False: the grammar does not allow it here; nothing changes.
  bool accept(TokenId token);
  // Takes the last `count` accepted tokens back.
  void rollback(std::size_t count);
  // Leading tokens of `tokens` that the grammar would accept in a row; nothing changes.
  std::size_t count_accepted(std::span<const TokenId> tokens);

  // Sets bit t % 32 of word t / 32 for every token t that may come next, and clears the others.
  // Where the output is whole these are the tokens that end a generation, or they are among them.
  // False: every token may come, and `words` is not written. REQUIRES: words.size() == num_words().
  bool fill(std::span<std::uint32_t> words);
  std::size_t num_words() const;
  // The last `fill` found no token that fits, or the output stands at too many places of an
  // ambiguous grammar at once; it then allowed what ends a generation.
  bool is_stuck() const { return is_stuck_; }

  // The output is whole and a token that ends a generation was accepted.
  bool is_terminated() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
  bool is_stuck_ = false;
};

}  // namespace baton::engine
