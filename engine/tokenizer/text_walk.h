// Steps over characters of valid UTF-8 with their classes; what all word scanners are written with.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "engine/tokenizer/char_class.h"

namespace baton::engine {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

struct WalkChar {
  char32_t code;
  std::size_t size;
};

class TextWalk {
 public:
  TextWalk(const CharClasses& classes, std::string_view text)
      : classes_(classes), text_(text), size_(text.size()) {}

  std::size_t size() const { return size_; }
  unsigned char byte(std::size_t at) const { return static_cast<unsigned char>(text_[at]); }
  bool has(std::size_t at, char c) const { return at < size_ && text_[at] == c; }

  WalkChar character(std::size_t at) const {
    const char32_t first = byte(at);
    if (first < 0x80) {
      return {first, 1};
    }
    const auto next = [&](std::size_t i) { return char32_t{byte(at + i)} & 0x3F; };
    if (first < 0xE0) {
      return {(first & 0x1F) << 6 | next(1), 2};
    }
    if (first < 0xF0) {
      return {(first & 0x0F) << 12 | next(1) << 6 | next(2), 3};
    }
    return {(first & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4};
  }

  // Class of the character at `at`, and its bytes in `size`.
  CharClass peek(std::size_t at, std::size_t& size) const {
    if (byte(at) < 0x80) {
      size = 1;
      return classes_.of_ascii(byte(at));
    }
    const WalkChar c = character(at);
    size = c.size;
    return classes_.of(c.code);
  }

  // End of the characters from `at` on whose class is in `wanted`, or is not when `kIn` is false.
  template <bool kIn = true>
  std::size_t run(std::size_t at, CharClass wanted, std::size_t limit = kNoLimit) const {
    for (; at < size_ && limit > 0; --limit) {
      std::size_t size = 0;
      if (((peek(at, size) & wanted) != 0) != kIn) {
        break;
      }
      at += size;
    }
    return at;
  }

  // End of [\r\n]* or [\r\n/]*.
  std::size_t newlines(std::size_t at, bool slashes = false) const {
    while (at < size_ &&
           (text_[at] == '\r' || text_[at] == '\n' || (slashes && text_[at] == '/'))) {
      ++at;
    }
    return at;
  }

  // \s+(?!\S)|\s+ : a run of spaces leaves its last one to the word that follows.
  std::size_t spaces(std::size_t at) const {
    std::size_t last = at;
    std::size_t end = at;
    while (end < size_) {
      std::size_t size = 0;
      if (peek(end, size) != kSpace) {
        break;
      }
      last = end;
      end += size;
    }
    return end == size_ || last == at ? end : last;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  std::size_t spaces_by_line(std::size_t at) const {
    for (std::size_t i = run(at, kSpace); i > at; --i) {
      if (text_[i - 1] == '\r' || text_[i - 1] == '\n') {
        return i;
      }
    }
    return spaces(at);
  }

  // Size of "'s", "'re" and the like at `at`, or 0.
  std::size_t contraction(std::size_t at, bool any_case) const {
    if (!has(at, '\'') || at + 1 >= size_) {
      return 0;
    }
    const auto letter = [&](std::size_t i) -> char {
      if (at + i >= size_) {
        return '\0';
      }
      const char c = text_[at + i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? 3 : 0;
      case 'l':
        return letter(2) == 'l' ? 3 : 0;
      case '\xC5':  // U+017F, the long s, is an "s" to expressions that ignore case
        return any_case && has(at + 2, '\xBF') ? 3 : 0;
      default:
        return 0;
    }
  }

 private:
  const CharClasses& classes_;
  std::string_view text_;
  std::size_t size_;
};

// Cuts the text from `at` on where `match` matches; what lies between two matches is one word.
// `match` gives the end of a match at a place, or the place.
template <class Match>
void isolate(const TextWalk& text, std::size_t at, std::vector<std::uint32_t>& ends, Match match) {
  const auto push = [&ends](std::size_t end) { ends.push_back(static_cast<std::uint32_t>(end)); };
  std::size_t gap = at;
  while (at < text.size()) {
    const std::size_t end = match(at);
    if (end == at) {
      at += text.character(at).size;
      continue;
    }
    if (gap < at) {
      push(at);
    }
    push(end);
    gap = at = end;
  }
  if (gap < at) {
    push(at);
  }
}

}  // namespace baton::engine
