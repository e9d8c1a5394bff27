// Measures grammars on one thread: compiling a JSON schema, and making the mask of each token and
// accepting it along random outputs. What `baton bench grammar` prints.
//
// Thread: the caller's. Failure: an unreadable model or file, or a schema that does not compile,
// gives an Error that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "common/base/error.h"

namespace baton::bench {

struct GrammarBenchOptions {
  std::string model;          // path of a GGUF file; a vocabulary alone will do
  std::string schemas;        // a file with a JSON schema a line; empty: a few of our own
  std::size_t outputs = 20;   // of each schema
  std::size_t longest = 256;  // tokens of an output
};

struct GrammarBenchResult {
  std::size_t vocab_size = 0;
  std::size_t schemas = 0;
  std::size_t tokens = 0;
  double first_ms = 0;  // the first grammar, which reads the vocabulary
  // Microseconds.
  Spread compile;  // of the others
  Spread check;    // what a gateway does, without a vocabulary
  Spread mask;     // a token
  Spread accept;
};

Result<GrammarBenchResult> run_grammar_bench(const GrammarBenchOptions& options);

std::string to_json(const GrammarBenchResult& result);

}  // namespace baton::bench
