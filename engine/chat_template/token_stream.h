// The tokens that the two parsers share, with one place of reading.
//
// Thread: one parse. Failure: errors carry the line of the token at hand.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/ast.h"
#include "engine/chat_template/lexer.h"

namespace baton::engine::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return now().line; }
  const Token& take() {
    const Token& token = tokens_[at_];
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return token;
  }
  bool take_operator(std::string_view op) {
    if (!now().is_operator(op)) {
      return false;
    }
    take();
    return true;
  }
  bool take_name(std::string_view name) {
    if (!now().is_name(name)) {
      return false;
    }
    take();
    return true;
  }
  Status expect_operator(std::string_view op) {
    return take_operator(op) ? Status() : error(fmt::format("expected '{}', found {}", op, here()));
  }
  Result<std::string> expect_name() {
    if (now().type != TokenType::Name) {
      return error(fmt::format("expected a name, found {}", here()));
    }
    return take().text;
  }
  // The token at hand, in words.
  std::string here() const {
    switch (now().type) {
      case TokenType::End:
        return "the end of the template";
      case TokenType::Data:
        return "text";
      case TokenType::BlockEnd:
        return "'%}'";
      case TokenType::VariableEnd:
        return "'}}'";
      case TokenType::BlockBegin:
        return "'{%'";
      case TokenType::VariableBegin:
        return "'{{'";
      default:
        return fmt::format("'{}'", now().text);
    }
  }
  std::unexpected<Error> error(std::string_view what) const { return error_at(line(), what); }
  static std::unexpected<Error> error_at(int line, std::string_view what) {
    return fail(ErrorCode::InvalidArgument, fmt::format("chat template, line {}: {}", line, what));
  }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

inline constexpr int kMaxTreeDepth = 120;  // of a syntax tree, and of nested parse calls

// A list of kids without copies: initializer lists cannot hold move-only values.
template <class... Nodes>
std::vector<NodePtr> kids_of(Nodes... nodes) {
  std::vector<NodePtr> kids;
  kids.reserve(sizeof...(nodes));
  (kids.push_back(std::move(nodes)), ...);
  return kids;
}

// Puts `kids` under `node` and counts levels.
Result<NodePtr> finish(std::unique_ptr<Node> node, std::vector<NodePtr> kids);

}  // namespace baton::engine::jinja
