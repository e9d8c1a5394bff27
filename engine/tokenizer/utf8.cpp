#include "engine/tokenizer/utf8.h"

#include <simdjson.h>

#include <utility>

namespace baton::engine {
namespace {

// Bounds of the second byte after a lead byte; they exclude overlong forms, surrogates and
// everything above U+10FFFF.
struct Lead {
  std::uint8_t size;
  std::uint8_t low;
  std::uint8_t high;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2, 0x80, 0xBF};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    return {3,
            static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    return {4,
            static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Char decode_long_utf8(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const Lead lead = lead_of(first);
  if (lead.size == 0) {
    return {kReplacement, 1, false, false};
  }
  char32_t code = first & (0x7FU >> lead.size);
  std::uint8_t low = lead.low;
  std::uint8_t high = lead.high;
  for (std::uint8_t i = 1; i < lead.size; ++i) {
    if (at + i >= text.size()) {
      return {kReplacement, i, false, true};
    }
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (byte < low || byte > high) {
      return {kReplacement, i, false, false};
    }
    code = (code << 6) | (byte & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {code, lead.size, true, false};
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code >= 0xD800 && code <= 0xDFFF) {
    out.append(kReplacementUtf8);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x110000) {
    out.push_back(static_cast<char>(0xF0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.append(kReplacementUtf8);
  }
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

void append_sanitized(std::string& out, std::string_view text) {
  if (is_valid_utf8(text)) {
    out += text;
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    out.append(c.valid ? text.substr(at, c.size) : kReplacementUtf8);
    at += c.size;
  }
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  append_sanitized(out, text);
  return out;
}

std::string sanitize_utf8(std::string&& text) {
  return is_valid_utf8(text) ? std::move(text) : sanitize_utf8(std::string_view(text));
}

bool is_white_space(char32_t code) {
  return code == 0x20 || (code >= 9 && code <= 13) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::size_t end_of_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_white_space(c.code)) {
      break;
    }
    at += c.size;
  }
  return at;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // Only the last three bytes can belong to an unfinished character.
  std::size_t at = text.size() > 3 ? text.size() - 3 : 0;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    ++at;  // a continuation byte: its lead lies further left and is complete or broken
  }
  for (; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.truncated) {
      return at;
    }
    at += c.size;
  }
  return text.size();
}

}  // namespace baton::engine
