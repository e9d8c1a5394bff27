#include "engine/chat_template/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "engine/tokenizer/utf8.h"

namespace baton::engine::jinja {
namespace {

constexpr char32_t kLargeSharpS = 0x1E9E;

bool is_letter(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_printable(char32_t code) {
  if (code == ' ') {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

// Rewrites each character; every run keeps its mark.
template <class Map>
Text map_chars(const Text& text, Map map) {
  Text out;
  std::size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    std::string mapped;
    for (std::size_t at = begin; at < run.end;) {
      const Utf8Char c = decode_utf8(text.view(), at);
      const char32_t to = map(c.code);
      if (to == kLargeSharpS && c.code != kLargeSharpS) {
        mapped += "SS";  // the one everyday letter that becomes two
      } else {
        append_utf8(mapped, to);
      }
      at += c.size;
    }
    out.append(mapped, run.foreign);
    begin = run.end;
  }
  return out;
}

char32_t upper_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t lower_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  std::array<char, 40> buffer;
  const double size = std::fabs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto done =
      std::to_chars(buffer.data(),
                    buffer.data() + buffer.size(),
                    value,
                    exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(buffer.data(), done.ptr);
  if (!exponent && out.find('.') == std::string::npos) {
    out += ".0";
  }
  return out;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.size;
    if (c.code == static_cast<unsigned char>(quote) || c.code == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.code));
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (is_printable(c.code)) {
      append_utf8(out, c.code);
    } else if (c.code < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c.code));
    } else if (c.code < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c.code));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c.code));
    }
  }
  out.push_back(quote);
  return out;
}

std::size_t count_chars(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    at += decode_utf8(text, at).size;
  }
  return count;
}

std::size_t char_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += decode_utf8(text, at).size;
    --index;
  }
  return at;
}

bool is_python_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

Text strip(const Text& text, std::string_view chars, bool left, bool right) {
  const auto drop = [&](const Utf8Char& c, std::string_view bytes) {
    if (chars.empty()) {
      return c.valid && is_python_space(c.code);
    }
    for (std::size_t at = 0; at < chars.size();) {
      const std::size_t size = decode_utf8(chars, at).size;
      if (chars.substr(at, size) == bytes) {
        return true;
      }
      at += size;
    }
    return false;
  };
  const std::string_view all = text.view();
  std::size_t begin = 0;
  while (left && begin < all.size()) {
    const Utf8Char c = decode_utf8(all, begin);
    if (!drop(c, all.substr(begin, c.size))) {
      break;
    }
    begin += c.size;
  }
  std::size_t end = all.size();
  while (right && end > begin) {
    std::size_t start = end - 1;
    while (start > begin && end - start < 4 &&
           (static_cast<unsigned char>(all[start]) & 0xC0) == 0x80) {
      --start;
    }
    const Utf8Char c = decode_utf8(all, start);
    if (start + c.size != end || !drop(c, all.substr(start, c.size))) {
      break;
    }
    end = start;
  }
  return text.slice(begin, end);
}

Text to_upper(const Text& text) {
  return map_chars(text, upper_of);
}

Text to_lower(const Text& text) {
  return map_chars(text, lower_of);
}

Text capitalize(const Text& text) {
  return map_chars(text, [first = true](char32_t code) mutable {
    return std::exchange(first, false) ? upper_of(code) : lower_of(code);
  });
}

Text title(const Text& text, bool apostrophes_join) {
  return map_chars(text, [apostrophes_join, inside = false](char32_t code) mutable {
    const char32_t mapped = inside ? lower_of(code) : upper_of(code);
    if (apostrophes_join) {
      // The filter splits at white space and at - ( { [ <.
      inside = !is_python_space(code) && code != '-' && code != '(' && code != '{' && code != '[' &&
               code != '<';
    } else {
      inside = is_letter(code);
    }
    return mapped;
  });
}

}  // namespace baton::engine::jinja
