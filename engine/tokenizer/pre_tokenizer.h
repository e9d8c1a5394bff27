// Cuts text into the words inside which byte-level BPE may merge, as each model family's own
// pre-tokenizer does. The families' regular expressions are written out as scanners
// (word_scanner.h), exact for Unicode 16.0, so that no expression engine with other tables is in
// the way.
//
// A pre-tokenizer is a list of passes; each pass cuts every piece of the pass before.
//
// Thread: const after building. Failure: an unknown name gives InvalidModel that lists the known.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/word_scanner.h"

namespace baton::engine {

class PreTokenizer {
 public:
  using Pass = CutPass*;

  static Result<PreTokenizer> create(std::string_view name);

  // Ends of the words of `text`, ascending; the last is text.size(). REQUIRES: valid UTF-8.
  void split(std::string_view text, std::vector<std::uint32_t>& ends) const;
  // True for families that take a whole word from the vocabulary before any merge.
  bool ignore_merges() const { return ignore_merges_; }
  // True for families that bring text to normalization form C first.
  bool normalizes() const { return normalizes_; }

 private:
  CharClasses classes_;
  std::vector<Pass> passes_;
  bool ignore_merges_ = false;
  bool normalizes_ = false;
};

}  // namespace baton::engine
