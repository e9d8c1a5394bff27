// Python's rules for strings and numbers that templates can see: repr, white space, characters,
// letter case, slices by character.
//
// Thread: pure functions. Failure: none; broken UTF-8 counts as one character a broken part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/chat_template/text.h"

namespace baton::engine::jinja {

std::string float_repr(double value);
std::string string_repr(std::string_view text);
std::size_t count_chars(std::string_view text);
// Byte offset of character `index`, at most text.size().
std::size_t char_offset(std::string_view text, std::size_t index);
bool is_python_space(char32_t code);

// str.strip and its kin; `chars` empty: white space.
Text strip(const Text& text, std::string_view chars, bool left, bool right);
Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text capitalize(const Text& text);
// First letter of each word large, the rest small; a word ends at any sign but, with
// `apostrophes_join`, an apostrophe (the filter's rule; the method ends it there too).
Text title(const Text& text, bool apostrophes_join);

}  // namespace baton::engine::jinja
