#include "common/json/json_escape.h"

#include <array>
#include <cstddef>

namespace baton {
namespace {

constexpr std::array<bool, 256> make_escape_table() {
  std::array<bool, 256> table{};
  for (int c = 0; c < 0x20; ++c) {
    table[static_cast<std::size_t>(c)] = true;
  }
  table['"'] = true;
  table['\\'] = true;
  table[0x7f] = true;
  return table;
}
constexpr auto kNeedsEscape = make_escape_table();

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!kNeedsEscape[c]) [[likely]] {
      continue;
    }
    out.append(text, from, i - from);
    from = i + 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, from, text.size() - from);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

}  // namespace baton
