// UTF-8 on foreign bytes: decoding that never reads past the end, and replacement of broken bytes.
// A broken sequence is its longest part that could have been the start of a character ("maximal
// subpart", Unicode 15 §3.9); each becomes one U+FFFD.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::engine {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = 0;      // kReplacement when broken
  std::uint8_t size = 0;  // bytes taken, at least 1
  bool valid = false;
  bool truncated = false;  // broken only because the text ends here
};

// As decode_utf8, for a character that is not ASCII.
Utf8Char decode_long_utf8(std::string_view text, std::size_t at);

// The character at `text[at]`. REQUIRES: at < text.size().
inline Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  return first < 0x80 ? Utf8Char{first, 1, true, false} : decode_long_utf8(text, at);
}
void append_utf8(std::string& out, char32_t code);
bool is_valid_utf8(std::string_view text);
// `text` with every broken sequence replaced by U+FFFD.
std::string sanitize_utf8(std::string_view text);
std::string sanitize_utf8(std::string&& text);
void append_sanitized(std::string& out, std::string_view text);
bool is_white_space(char32_t code);  // Unicode's property White_Space
// End of the white space at `text[at]`.
std::size_t end_of_white_space(std::string_view text, std::size_t at);
// Number of leading bytes that are whole, well-formed or broken for good; the rest (0 to 3 bytes)
// may yet become a character.
std::size_t complete_utf8_prefix(std::string_view text);

}  // namespace baton::engine
