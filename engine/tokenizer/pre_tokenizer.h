// Cuts text into the words inside which byte-level BPE may merge, as each model family's own
// pre-tokenizer does. The families' regular expressions are written out as scanners, exact for
// Unicode 16.0, so that no expression engine with other tables is in the way.
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

namespace baton::engine {

class PreTokenizer {
 public:
  static Result<PreTokenizer> create(std::string_view name);

  // Ends of the words of `text`, ascending; the last is text.size(). REQUIRES: valid UTF-8.
  void split(std::string_view text, std::vector<std::uint32_t>& ends) const;
  // True for families that take a whole word from the vocabulary before any merge.
  bool ignore_merges() const { return ignore_merges_; }

  enum class Pass : std::uint8_t {
    Gpt2,              // words with one space before, contractions, runs of the rest
    OneDigit,          // each number character alone
    NumberRuns,        // \p{N}+
    ThreeAsciiDigits,  // [0-9][0-9][0-9]
    PunctuationRuns,   // [\p{P}$+<=>^~|]+
    Llama3,            // words with any one sign before, numbers by three, newlines with signs
    Qwen2,             // the same with numbers by one
    Qwen35             // the same with marks in words
  };

 private:
  std::size_t next(Pass pass, std::string_view text, std::size_t at) const;
  std::size_t next_gpt2(std::string_view text, std::size_t at) const;
  std::size_t next_llama3(std::string_view text, std::size_t at, Pass pass) const;
  CharClass peek(std::string_view text, std::size_t at, std::size_t& size) const;
  template <class Accept>
  std::size_t run(std::string_view text, std::size_t at, std::size_t limit, Accept accept) const;
  std::size_t end_of_spaces(std::string_view text, std::size_t at) const;

  CharClasses classes_;
  std::vector<Pass> passes_;
  bool ignore_merges_ = false;
};

}  // namespace baton::engine
