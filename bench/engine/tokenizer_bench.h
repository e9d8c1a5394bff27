// Measures a tokenizer on one thread beside the PyPI package `tokenizers` on the same documents,
// ours and the peer's in turns, and compares every id. What `baton bench tokenizer` prints.
//
// Thread: the caller's; the peer runs as a child process. Failure: an unreadable model or text, or
// a peer that cannot be run, gives an Error that names it; ids that differ are a result, not an
// error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct TokenizerBenchOptions {
  std::string model;               // path of a GGUF file; a vocabulary alone will do
  std::vector<std::string> texts;  // files; equal shares of them make the documents
  std::size_t bytes = 1'000'000;   // of all documents together
  std::size_t document_bytes = 4096;
  std::string peer_python;  // interpreter that has `tokenizers`; empty: ours alone
  std::string peer_script = "tools/peers/hf_tokenizers.py";
  unsigned rounds = 3;  // turns; medians count, of the peer its best pass
  bool plain = false;   // control tokens in texts are text
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

struct TokenizerBenchRow {
  std::string file;  // name of the model file
  std::string family;
  std::size_t bytes = 0;
  std::size_t documents = 0;
  std::size_t tokens = 0;
  double build_s = 0;      // making our tokenizer from the vocabulary
  double cold_mb_s = 0;    // our first pass after it was made
  double warm_mb_s = 0;    // our second
  double peer_mb_s = 0;    // 0: no peer
  double ratio = 0;        // cold / peer; 0: no peer
  bool ids_equal = false;  // false also without a peer
  std::string difference;  // the first, in words
};

Result<TokenizerBenchRow> run_tokenizer_bench(const TokenizerBenchOptions& options);

// {"rows": [...]} in one line.
std::string to_json(const std::vector<TokenizerBenchRow>& rows);

}  // namespace baton::bench
