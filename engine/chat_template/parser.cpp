#include "engine/chat_template/parser.h"

#include <span>

#include "engine/chat_template/expression_parser.h"

namespace baton::engine::jinja {
namespace {

using Names = std::vector<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : stream_(std::move(tokens)), expressions_(stream_) {}

  Result<NodePtr> run() { return sequence({}); }

 private:
  // Statements up to a block whose name is in `ends`, which is taken to behind its name; with no
  // ends, up to the end of the template.
  Result<NodePtr> sequence(const Names& ends) {
    if (++nesting_ > kMaxTreeDepth / 2) {
      return stream_.error("the template nests too deeply");
    }
    auto node = make_node(NodeKind::Sequence, stream_.line());
    std::vector<NodePtr> kids;
    while (true) {
      const Token& token = stream_.now();
      if (token.type == TokenType::End) {
        if (!ends.empty()) {
          return stream_.error(fmt::format("the template ends, but '{}' is missing", ends.back()));
        }
        break;
      }
      if (token.type == TokenType::Data) {
        auto data = make_node(NodeKind::Data, token.line);
        data->constant = Value::own(stream_.take().text);
        kids.push_back(std::move(data));
        continue;
      }
      if (token.type == TokenType::VariableBegin) {
        stream_.take();
        BATON_ASSIGN(NodePtr print, print_statement());
        kids.push_back(std::move(print));
        continue;
      }
      stream_.take();  // BlockBegin
      BATON_ASSIGN(const std::string word, stream_.expect_name());
      if (std::find(ends.begin(), ends.end(), word) != ends.end()) {
        ended_by_ = word;
        break;
      }
      BATON_ASSIGN(NodePtr statement, block(word));
      kids.push_back(std::move(statement));
    }
    --nesting_;
    return finish(std::move(node), std::move(kids));
  }

  Status close_block() {
    if (stream_.now().type != TokenType::BlockEnd) {
      return stream_.error(fmt::format("expected '%}}', found {}", stream_.here()));
    }
    stream_.take();
    return {};
  }

  // "%}", statements, "{% end %}".
  Result<NodePtr> body(std::string_view end) {
    BATON_TRY(close_block());
    BATON_ASSIGN(NodePtr made, sequence({end}));
    BATON_TRY(close_block());
    return made;
  }

  Result<NodePtr> print_statement() {
    auto node = make_node(NodeKind::Print, stream_.line());
    std::vector<NodePtr> kids;
    BATON_ASSIGN(NodePtr value, expressions_.tuple());
    kids.push_back(std::move(value));
    if (stream_.now().type != TokenType::VariableEnd) {
      return stream_.error(fmt::format("expected '}}}}', found {}", stream_.here()));
    }
    stream_.take();
    return finish(std::move(node), std::move(kids));
  }

  Result<NodePtr> block(const std::string& word) {
    if (word == "if") {
      return if_block();
    }
    if (word == "for") {
      return for_block();
    }
    if (word == "set") {
      return set_block();
    }
    if (word == "macro") {
      return macro_block();
    }
    if (word == "call") {
      return call_block();
    }
    if (word == "with") {
      return with_block();
    }
    auto node = make_node(NodeKind::Break, stream_.line());
    std::vector<NodePtr> kids;
    if (word == "break" || word == "continue") {
      if (loops_ == 0) {
        return stream_.error(fmt::format("'{}' stands outside of a loop", word));
      }
      node->kind = word == "break" ? NodeKind::Break : NodeKind::Continue;
      BATON_TRY(close_block());
      return finish(std::move(node), std::move(kids));
    }
    if (word == "filter") {
      node->kind = NodeKind::FilterBlock;
      BATON_ASSIGN(NodePtr filter, expressions_.filters(nullptr, true));
      BATON_ASSIGN(NodePtr inner, body_outside_loop("endfilter"));
      kids.push_back(std::move(filter));
      kids.push_back(std::move(inner));
      return finish(std::move(node), std::move(kids));
    }
    if (word == "generation") {
      node->kind = NodeKind::Scope;
      BATON_ASSIGN(NodePtr inner, body_outside_loop("endgeneration"));
      kids.push_back(std::move(inner));
      return finish(std::move(node), std::move(kids));
    }
    return stream_.error(fmt::format("unknown or misplaced tag '{}'", word));
  }

  // A body that `break` cannot leave, because its output is a value.
  Result<NodePtr> body_outside_loop(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    auto made = body(end);
    loops_ = loops;
    return made;
  }

  Result<NodePtr> if_block() {
    auto node = make_node(NodeKind::If, stream_.line());
    std::vector<NodePtr> kids;
    while (true) {
      BATON_ASSIGN(NodePtr when, expressions_.tuple(false));
      BATON_TRY(close_block());
      BATON_ASSIGN(NodePtr then, sequence({"elif", "else", "endif"}));
      kids.push_back(std::move(when));
      kids.push_back(std::move(then));
      if (ended_by_ == "elif") {
        continue;
      }
      if (ended_by_ == "else") {
        BATON_TRY(close_block());
        BATON_ASSIGN(NodePtr otherwise, sequence({"endif"}));
        kids.push_back(std::move(otherwise));
      }
      BATON_TRY(close_block());
      return finish(std::move(node), std::move(kids));
    }
  }

  Result<NodePtr> for_block() {
    auto node = make_node(NodeKind::For, stream_.line());
    std::vector<NodePtr> kids;
    BATON_ASSIGN(NodePtr target, expressions_.target(false));
    if (!stream_.take_name("in")) {
      return stream_.error(fmt::format("expected 'in', found {}", stream_.here()));
    }
    BATON_ASSIGN(NodePtr items, expressions_.tuple(false));
    NodePtr filter;
    if (stream_.take_name("if")) {
      BATON_ASSIGN(filter, expressions_.expression());
    }
    if (stream_.now().is_name("recursive")) {
      return stream_.error("recursive loops are not supported");
    }
    BATON_TRY(close_block());
    ++loops_;
    BATON_ASSIGN(NodePtr inner, sequence({"else", "endfor"}));
    --loops_;
    NodePtr otherwise;
    if (ended_by_ == "else") {
      BATON_TRY(close_block());
      BATON_ASSIGN(otherwise, sequence({"endfor"}));
    }
    BATON_TRY(close_block());
    kids.push_back(std::move(target));
    kids.push_back(std::move(items));
    kids.push_back(std::move(filter));
    kids.push_back(std::move(inner));
    kids.push_back(std::move(otherwise));
    return finish(std::move(node), std::move(kids));
  }

  Result<NodePtr> set_block() {
    auto node = make_node(NodeKind::Set, stream_.line());
    std::vector<NodePtr> kids;
    BATON_ASSIGN(NodePtr target, expressions_.target(true));
    kids.push_back(std::move(target));
    if (stream_.take_operator("=")) {
      BATON_ASSIGN(NodePtr value, expressions_.tuple());
      kids.push_back(std::move(value));
      BATON_TRY(close_block());
      return finish(std::move(node), std::move(kids));
    }
    node->kind = NodeKind::SetBlock;
    NodePtr filter;
    if (stream_.now().is_operator("|")) {
      BATON_ASSIGN(filter, expressions_.filters(nullptr, false));
    }
    BATON_ASSIGN(NodePtr inner, body_outside_loop("endset"));
    kids.push_back(std::move(inner));
    kids.push_back(std::move(filter));
    return finish(std::move(node), std::move(kids));
  }

  Result<NodePtr> macro_block() {
    auto node = make_node(NodeKind::Macro, stream_.line());
    BATON_ASSIGN(node->name, stream_.expect_name());
    BATON_TRY(expressions_.parameters(*node));
    std::vector<NodePtr> kids;
    BATON_ASSIGN(NodePtr inner, body_outside_loop("endmacro"));
    kids.push_back(std::move(inner));
    return finish(std::move(node), std::move(kids));
  }

  Result<NodePtr> call_block() {
    auto node = make_node(NodeKind::CallBlock, stream_.line());
    if (stream_.now().is_operator("(")) {
      BATON_TRY(expressions_.parameters(*node));
    }
    std::vector<NodePtr> kids;
    BATON_ASSIGN(NodePtr called, expressions_.expression());
    if (called->kind != NodeKind::Call) {
      return stream_.error("a call block needs a call");
    }
    BATON_ASSIGN(NodePtr inner, body_outside_loop("endcall"));
    kids.push_back(std::move(called));
    kids.push_back(std::move(inner));
    return finish(std::move(node), std::move(kids));
  }

  Result<NodePtr> with_block() {
    auto node = make_node(NodeKind::With, stream_.line());
    std::vector<NodePtr> kids;
    while (stream_.now().type == TokenType::Name) {
      auto target = make_node(NodeKind::Name, stream_.line());
      BATON_ASSIGN(target->name, stream_.expect_name());
      BATON_TRY(stream_.expect_operator("="));
      BATON_ASSIGN(NodePtr value, expressions_.expression());
      kids.push_back(std::move(target));
      kids.push_back(std::move(value));
      if (!stream_.take_operator(",")) {
        break;
      }
    }
    BATON_ASSIGN(NodePtr inner, body("endwith"));
    kids.push_back(std::move(inner));
    return finish(std::move(node), std::move(kids));
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  std::string ended_by_;
  int nesting_ = 0;
  int loops_ = 0;  // open loops that break and continue may leave
};

}  // namespace

Result<NodePtr> parse_template(std::string_view source) {
  BATON_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace baton::engine::jinja
