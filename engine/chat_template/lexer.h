// Template source to tokens. Text between tags becomes Data tokens with the white-space rules of
// the settings that model templates are written for: the newline after a block tag goes
// (trim_blocks), and so do spaces before a block tag on its line (lstrip_blocks); "-" and "+" in
// tags overrule.
//
// Thread: pure. Failure: InvalidArgument with the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::engine::jinja {

enum class TokenType : std::uint8_t {
  Data,           // text outside of tags
  VariableBegin,  // {{
  VariableEnd,
  BlockBegin,  // {%
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,  // its text is in `text`
  End
};

struct Token {
  TokenType type = TokenType::End;
  int line = 1;
  std::string text;  // strings are unescaped
  std::int64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view name) const { return type == TokenType::Name && text == name; }
  bool is_operator(std::string_view op) const { return type == TokenType::Operator && text == op; }
};

// The last token is End.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace baton::engine::jinja
