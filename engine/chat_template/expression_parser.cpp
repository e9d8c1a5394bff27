#include "engine/chat_template/expression_parser.h"

#include <algorithm>

namespace baton::engine::jinja {

std::unique_ptr<Node> make_node(NodeKind kind, int line) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = line;
  return node;
}

Result<NodePtr> finish(std::unique_ptr<Node> node, std::vector<NodePtr> kids) {
  int below = 0;
  for (const NodePtr& kid : kids) {
    below = std::max(below, kid ? kid->depth : 0);
  }
  for (const auto& [name, value] : node->keywords) {
    below = std::max(below, value ? value->depth : 0);
  }
  node->depth = below + 1;
  node->kids = std::move(kids);
  if (node->depth > kMaxTreeDepth) {
    return TokenStream::error_at(node->line, "the template nests too deeply");
  }
  return NodePtr(std::move(node));
}

namespace {

class Nested {
 public:
  explicit Nested(int& count) : count_(&count) { ++count; }
  ~Nested() { --*count_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int* count_;
};

}  // namespace

Result<NodePtr> ExpressionParser::expression(bool with_condition) {
  const Nested nested(nesting_);
  if (nesting_ > kMaxTreeDepth) {
    return stream_->error("the template nests too deeply");
  }
  return with_condition ? condition() : disjunction();
}

Result<NodePtr> ExpressionParser::condition() {
  const int line = stream_->line();
  BATON_ASSIGN(NodePtr value, disjunction());
  while (stream_->take_name("if")) {
    BATON_ASSIGN(NodePtr when, disjunction());
    NodePtr otherwise;
    if (stream_->take_name("else")) {
      BATON_ASSIGN(otherwise, expression());
    }
    BATON_ASSIGN(value,
                 finish(make_node(NodeKind::Conditional, line),
                        kids_of(std::move(when), std::move(value), std::move(otherwise))));
  }
  return value;
}

Result<NodePtr> ExpressionParser::disjunction() {
  BATON_ASSIGN(NodePtr left, conjunction());
  while (stream_->take_name("or")) {
    const int line = stream_->line();
    BATON_ASSIGN(NodePtr right, conjunction());
    BATON_ASSIGN(left,
                 finish(make_node(NodeKind::Or, line), kids_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<NodePtr> ExpressionParser::conjunction() {
  BATON_ASSIGN(NodePtr left, negation());
  while (stream_->take_name("and")) {
    const int line = stream_->line();
    BATON_ASSIGN(NodePtr right, negation());
    BATON_ASSIGN(
        left, finish(make_node(NodeKind::And, line), kids_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<NodePtr> ExpressionParser::negation() {
  const Nested nested(nesting_);
  if (nesting_ > kMaxTreeDepth) {
    return stream_->error("the template nests too deeply");
  }
  const int line = stream_->line();
  if (!stream_->take_name("not")) {
    return comparison();
  }
  BATON_ASSIGN(NodePtr inner, negation());
  return finish(make_node(NodeKind::Not, line), kids_of(std::move(inner)));
}

Result<NodePtr> ExpressionParser::comparison() {
  const int line = stream_->line();
  BATON_ASSIGN(NodePtr first, sum());
  auto node = make_node(NodeKind::Compare, line);
  std::vector<NodePtr> kids;
  while (true) {
    std::string op;
    for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (stream_->take_operator(known)) {
        op = known;
        break;
      }
    }
    if (op.empty() && stream_->take_name("in")) {
      op = "in";
    }
    if (op.empty() && stream_->now().is_name("not") && stream_->ahead().is_name("in")) {
      stream_->take();
      stream_->take();
      op = "not in";
    }
    if (op.empty()) {
      break;
    }
    node->operators.push_back(std::move(op));
    BATON_ASSIGN(NodePtr next, sum());
    kids.push_back(std::move(next));
  }
  if (kids.empty()) {
    return first;
  }
  kids.insert(kids.begin(), std::move(first));
  return finish(std::move(node), std::move(kids));
}

Result<NodePtr> ExpressionParser::binary(std::string op, int line, NodePtr left, NodePtr right) {
  auto node = make_node(NodeKind::Binary, line);
  node->name = std::move(op);
  return finish(std::move(node), kids_of(std::move(left), std::move(right)));
}

Result<NodePtr> ExpressionParser::sum() {
  BATON_ASSIGN(NodePtr left, concat());
  while (stream_->now().is_operator("+") || stream_->now().is_operator("-")) {
    const int line = stream_->line();
    std::string op = stream_->take().text;
    BATON_ASSIGN(NodePtr right, concat());
    BATON_ASSIGN(left, binary(std::move(op), line, std::move(left), std::move(right)));
  }
  return left;
}

Result<NodePtr> ExpressionParser::concat() {
  const int line = stream_->line();
  BATON_ASSIGN(NodePtr first, product());
  if (!stream_->now().is_operator("~")) {
    return first;
  }
  std::vector<NodePtr> kids = kids_of(std::move(first));
  while (stream_->take_operator("~")) {
    BATON_ASSIGN(NodePtr next, product());
    kids.push_back(std::move(next));
  }
  return finish(make_node(NodeKind::Concat, line), std::move(kids));
}

Result<NodePtr> ExpressionParser::product() {
  BATON_ASSIGN(NodePtr left, power());
  while (stream_->now().is_operator("*") || stream_->now().is_operator("/") ||
         stream_->now().is_operator("//") || stream_->now().is_operator("%")) {
    const int line = stream_->line();
    std::string op = stream_->take().text;
    BATON_ASSIGN(NodePtr right, power());
    BATON_ASSIGN(left, binary(std::move(op), line, std::move(left), std::move(right)));
  }
  return left;
}

Result<NodePtr> ExpressionParser::power() {
  BATON_ASSIGN(NodePtr left, unary(true));
  while (stream_->now().is_operator("**")) {
    const int line = stream_->line();
    stream_->take();
    BATON_ASSIGN(NodePtr right, unary(true));
    BATON_ASSIGN(left, binary("**", line, std::move(left), std::move(right)));
  }
  return left;
}

Result<NodePtr> ExpressionParser::unary(bool with_filter) {
  const Nested nested(nesting_);
  if (nesting_ > kMaxTreeDepth) {
    return stream_->error("the template nests too deeply");
  }
  const int line = stream_->line();
  NodePtr node;
  if (stream_->now().is_operator("-") || stream_->now().is_operator("+")) {
    const bool negate = stream_->take().text == "-";
    BATON_ASSIGN(NodePtr inner, unary(false));
    BATON_ASSIGN(node,
                 finish(make_node(negate ? NodeKind::Negate : NodeKind::Positive, line),
                        kids_of(std::move(inner))));
  } else {
    BATON_ASSIGN(node, primary());
  }
  BATON_ASSIGN(node, postfix(std::move(node)));
  return with_filter ? filtered(std::move(node)) : Result<NodePtr>(std::move(node));
}

Result<NodePtr> ExpressionParser::primary() {
  const Token& token = stream_->now();
  auto node = make_node(NodeKind::Constant, token.line);
  switch (token.type) {
    case TokenType::Name:
      stream_->take();
      if (token.text == "true" || token.text == "True") {
        node->constant = true;
      } else if (token.text == "false" || token.text == "False") {
        node->constant = false;
      } else if (token.text == "none" || token.text == "None") {
        node->constant = None{};
      } else {
        node->kind = NodeKind::Name;
        node->name = token.text;
      }
      return NodePtr(std::move(node));
    case TokenType::String: {
      std::string text;
      while (stream_->now().type == TokenType::String) {
        text += stream_->take().text;
      }
      node->constant = Value::own(std::move(text));
      return NodePtr(std::move(node));
    }
    case TokenType::Integer:
      node->constant = stream_->take().integer;
      return NodePtr(std::move(node));
    case TokenType::Float:
      node->constant = stream_->take().real;
      return NodePtr(std::move(node));
    default:
      break;
  }
  if (stream_->take_operator("(")) {
    BATON_ASSIGN(NodePtr inner, tuple(true, true));
    BATON_TRY(stream_->expect_operator(")"));
    return inner;
  }
  if (token.is_operator("[")) {
    return list();
  }
  if (token.is_operator("{")) {
    return dict();
  }
  return stream_->error(fmt::format("unexpected {}", stream_->here()));
}

Result<NodePtr> ExpressionParser::list() {
  const int line = stream_->take().line;
  std::vector<NodePtr> kids;
  while (!stream_->now().is_operator("]")) {
    if (!kids.empty()) {
      BATON_TRY(stream_->expect_operator(","));
    }
    if (stream_->now().is_operator("]")) {
      break;
    }
    BATON_ASSIGN(NodePtr item, expression());
    kids.push_back(std::move(item));
  }
  BATON_TRY(stream_->expect_operator("]"));
  return finish(make_node(NodeKind::ListLiteral, line), std::move(kids));
}

Result<NodePtr> ExpressionParser::dict() {
  const int line = stream_->take().line;
  std::vector<NodePtr> kids;
  while (!stream_->now().is_operator("}")) {
    if (!kids.empty()) {
      BATON_TRY(stream_->expect_operator(","));
    }
    if (stream_->now().is_operator("}")) {
      break;
    }
    BATON_ASSIGN(NodePtr key, expression());
    BATON_TRY(stream_->expect_operator(":"));
    BATON_ASSIGN(NodePtr value, expression());
    kids.push_back(std::move(key));
    kids.push_back(std::move(value));
  }
  BATON_TRY(stream_->expect_operator("}"));
  return finish(make_node(NodeKind::DictLiteral, line), std::move(kids));
}

Result<NodePtr> ExpressionParser::tuple(bool with_condition, bool in_parentheses) {
  const int line = stream_->line();
  std::vector<NodePtr> kids;
  bool is_tuple = false;
  while (true) {
    if (!kids.empty()) {
      BATON_TRY(stream_->expect_operator(","));
    }
    const TokenType type = stream_->now().type;
    if (type == TokenType::VariableEnd || type == TokenType::BlockEnd ||
        stream_->now().is_operator(")")) {
      break;
    }
    BATON_ASSIGN(NodePtr item, expression(with_condition));
    kids.push_back(std::move(item));
    if (!stream_->now().is_operator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple && !kids.empty()) {
    return std::move(kids.front());
  }
  if (!is_tuple && !in_parentheses) {
    return stream_->error(fmt::format("expected an expression, found {}", stream_->here()));
  }
  return finish(make_node(NodeKind::TupleLiteral, line), std::move(kids));
}

Result<NodePtr> ExpressionParser::simple_target(bool namespaces) {
  const int line = stream_->line();
  if (stream_->take_operator("(")) {
    BATON_ASSIGN(NodePtr inner, target(false));
    BATON_TRY(stream_->expect_operator(")"));
    return inner;
  }
  BATON_ASSIGN(std::string name, stream_->expect_name());
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) {
      return stream_->error(fmt::format("cannot assign to '{}'", name));
    }
  }
  auto node = make_node(NodeKind::Name, line);
  node->name = std::move(name);
  if (namespaces && stream_->take_operator(".")) {
    node->kind = NodeKind::NamespaceSet;
    BATON_ASSIGN(std::string attribute, stream_->expect_name());
    node->constant = Value::own(std::move(attribute));
  }
  return NodePtr(std::move(node));
}

Result<NodePtr> ExpressionParser::target(bool namespaces) {
  const Nested nested(nesting_);
  if (nesting_ > kMaxTreeDepth) {
    return stream_->error("the template nests too deeply");
  }
  const int line = stream_->line();
  BATON_ASSIGN(NodePtr first, simple_target(namespaces));
  if (!stream_->now().is_operator(",")) {
    return first;
  }
  std::vector<NodePtr> kids = kids_of(std::move(first));
  while (stream_->take_operator(",")) {
    if (stream_->now().type != TokenType::Name && !stream_->now().is_operator("(")) {
      break;
    }
    if (stream_->now().is_name("in")) {
      break;
    }
    BATON_ASSIGN(NodePtr next, simple_target(namespaces));
    kids.push_back(std::move(next));
  }
  return finish(make_node(NodeKind::TupleLiteral, line), std::move(kids));
}

}  // namespace baton::engine::jinja
