// What may follow a value: attributes, keys, slices, calls, filters and tests; and the parameters
// of macros. The levels of operators: expression_parser.cpp.
#include "engine/chat_template/expression_parser.h"

namespace baton::engine::jinja {

Result<NodePtr> ExpressionParser::postfix(NodePtr node) {
  while (true) {
    if (stream_->now().is_operator(".") || stream_->now().is_operator("[")) {
      BATON_ASSIGN(node, subscript(std::move(node)));
    } else if (stream_->now().is_operator("(")) {
      BATON_ASSIGN(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> ExpressionParser::filtered(NodePtr node) {
  while (true) {
    if (stream_->now().is_operator("|")) {
      BATON_ASSIGN(node, filters(std::move(node), false));
    } else if (stream_->now().is_name("is")) {
      BATON_ASSIGN(node, test(std::move(node)));
    } else if (stream_->now().is_operator("(")) {
      BATON_ASSIGN(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> ExpressionParser::subscript(NodePtr object) {
  const int line = stream_->line();
  if (stream_->take_operator(".")) {
    if (stream_->now().type == TokenType::Integer) {
      auto key = make_node(NodeKind::Constant, line);
      key->constant = stream_->take().integer;
      return finish(make_node(NodeKind::Item, line),
                    kids_of(std::move(object), NodePtr(std::move(key))));
    }
    auto node = make_node(NodeKind::Attribute, line);
    BATON_ASSIGN(node->name, stream_->expect_name());
    return finish(std::move(node), kids_of(std::move(object)));
  }
  stream_->take();
  NodePtr parts[3];
  bool slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!stream_->now().is_operator(":") && !stream_->now().is_operator("]")) {
      BATON_ASSIGN(parts[i], expression());
    }
    if (i == 2 || !stream_->take_operator(":")) {
      break;
    }
    slice = true;
  }
  BATON_TRY(stream_->expect_operator("]"));
  if (slice) {
    return finish(
        make_node(NodeKind::Slice, line),
        kids_of(std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
  }
  if (!parts[0]) {
    return stream_->error("[] needs a key");
  }
  return finish(make_node(NodeKind::Item, line), kids_of(std::move(object), std::move(parts[0])));
}

Status ExpressionParser::arguments(Node& node, std::vector<NodePtr>& kids) {
  BATON_TRY(stream_->expect_operator("("));
  bool first = true;
  while (!stream_->now().is_operator(")")) {
    if (!first) {
      BATON_TRY(stream_->expect_operator(","));
      if (stream_->now().is_operator(")")) {
        break;
      }
    }
    first = false;
    if (stream_->now().type == TokenType::Name && stream_->ahead().is_operator("=")) {
      std::string name = stream_->take().text;
      stream_->take();
      BATON_ASSIGN(NodePtr value, expression());
      node.keywords.emplace_back(std::move(name), std::move(value));
    } else if (!node.keywords.empty()) {
      return stream_->error("an argument without a name follows one with a name");
    } else {
      BATON_ASSIGN(NodePtr value, expression());
      kids.push_back(std::move(value));
    }
  }
  return stream_->expect_operator(")");
}

Result<NodePtr> ExpressionParser::call(NodePtr callee) {
  auto node = make_node(NodeKind::Call, stream_->line());
  std::vector<NodePtr> kids = kids_of(std::move(callee));
  BATON_TRY(arguments(*node, kids));
  return finish(std::move(node), std::move(kids));
}

Result<NodePtr> ExpressionParser::filters(NodePtr input, bool first_without_pipe) {
  while (first_without_pipe || stream_->take_operator("|")) {
    first_without_pipe = false;
    auto node = make_node(NodeKind::Filter, stream_->line());
    BATON_ASSIGN(node->name, stream_->expect_name());
    std::vector<NodePtr> kids = kids_of(std::move(input));
    if (stream_->now().is_operator("(")) {
      BATON_TRY(arguments(*node, kids));
    }
    BATON_ASSIGN(input, finish(std::move(node), std::move(kids)));
  }
  return input;
}

Result<NodePtr> ExpressionParser::test(NodePtr input) {
  const int line = stream_->take().line;
  const bool negated = stream_->take_name("not");
  auto node = make_node(NodeKind::Test, line);
  BATON_ASSIGN(node->name, stream_->expect_name());
  std::vector<NodePtr> kids = kids_of(std::move(input));
  const Token& now = stream_->now();
  const bool operand = now.type == TokenType::Name || now.type == TokenType::String ||
                       now.type == TokenType::Integer || now.type == TokenType::Float ||
                       now.is_operator("[") || now.is_operator("{");
  if (now.is_operator("(")) {
    BATON_TRY(arguments(*node, kids));
  } else if (now.is_name("is")) {
    return stream_->error("tests cannot be chained with 'is'");
  } else if (operand && !now.is_name("else") && !now.is_name("or") && !now.is_name("and")) {
    BATON_ASSIGN(NodePtr argument, primary());
    BATON_ASSIGN(argument, postfix(std::move(argument)));
    kids.push_back(std::move(argument));
  }
  BATON_ASSIGN(NodePtr made, finish(std::move(node), std::move(kids)));
  return negated ? finish(make_node(NodeKind::Not, line), kids_of(std::move(made)))
                 : Result<NodePtr>(std::move(made));
}

Status ExpressionParser::parameters(Node& node) {
  BATON_TRY(stream_->expect_operator("("));
  while (!stream_->now().is_operator(")")) {
    if (!node.keywords.empty()) {
      BATON_TRY(stream_->expect_operator(","));
    }
    BATON_ASSIGN(std::string name, stream_->expect_name());
    NodePtr value;
    if (stream_->take_operator("=")) {
      BATON_ASSIGN(value, expression());
    } else if (!node.keywords.empty() && node.keywords.back().second) {
      return stream_->error("a parameter without a default follows one with a default");
    }
    node.keywords.emplace_back(std::move(name), std::move(value));
  }
  return stream_->expect_operator(")");
}

}  // namespace baton::engine::jinja
