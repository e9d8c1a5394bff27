// The passes that pre-tokenizers are made of: each cuts a piece of text from `at` to its end and
// appends the ends of its words. Passes of one expression keep what it does not match as words too.
//
// Thread: pure functions. Failure: none. REQUIRES: valid UTF-8; `at` begins a character.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/tokenizer/char_class.h"

namespace baton::engine {

using CutPass = void(const CharClasses& classes,
                     std::string_view text,
                     std::size_t at,
                     std::vector<std::uint32_t>& ends);

// Grammars of words (word_scanner.cpp).
CutPass cut_gpt2;         // words with one space before, contractions, runs of the rest
CutPass cut_gpt2_digits;  // the same after every \p{N} was cut out alone
CutPass cut_llama3;       // words with any one sign before, numbers by three, newlines with signs
CutPass cut_qwen2;        // the same with numbers by one
CutPass cut_qwen35;       // the same with marks in words
CutPass cut_seed_coder;   // as qwen2; signs end before newlines
CutPass cut_tekken;       // words also end where upper case follows lower case
CutPass cut_gpt4o;        // the same with contractions at the ends of words, numbers by three
CutPass cut_deepseek3;    // ASCII words with one sign before, words with marks, signs

// One expression each (run_scanner.cpp).
CutPass cut_digits;            // \p{N}
CutPass cut_number_runs;       // \p{N}+
CutPass cut_three_numbers;     // \p{N}{1,3}
CutPass cut_three_digits;      // [0-9][0-9][0-9]
CutPass cut_signs;             // [\p{P}$+<=>^~|]+
CutPass cut_falcon_signs;      // [\p{P}$+<=>^~|`]+
CutPass cut_newlines;          // [\r\n]
CutPass cut_end_space;         // \s+ at the end
CutPass cut_letter_runs;       // \s?\p{L}+
CutPass cut_punctuation_runs;  // \s?\p{P}+
CutPass cut_cased_words;       // \s? and letters with case, as far as DeepSeek's list knows them
CutPass cut_wide_signs;        // \s?[!-/:-~！-／：-～‘-‟U+3000-。]+
CutPass cut_east_asian;        // [U+4E00-U+9FA5 U+0800-U+4E00 U+AC00-U+D7FF]+
CutPass cut_kana_han;          // [U+4E00-U+9FA5 U+3040-U+30FF]+
CutPass cut_bloom;             // one space and [^(\s|.,!?…。，、।۔،)]+

}  // namespace baton::engine
