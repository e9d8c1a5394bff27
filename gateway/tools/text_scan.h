// Small looks at text that arrives in pieces.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace baton::gateway {

inline constexpr std::string_view kSpace = " \t\r\n";

// Bytes of white space that `text` begins with; all of them when there is nothing else.
inline std::size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kSpace), text.size());
}

inline std::size_t trailing_space(std::string_view text) {
  return text.size() - (text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

// Length of the longest end of `text` that `mark` begins with and is longer than.
inline std::size_t partial_tail(std::string_view text, std::string_view mark) {
  std::size_t length = std::min(text.size(), mark.size() - 1);
  while (length > 0 && !mark.starts_with(text.substr(text.size() - length))) {
    --length;
  }
  return length;
}

}  // namespace baton::gateway
