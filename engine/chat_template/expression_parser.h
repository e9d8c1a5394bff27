// Expressions of the template language, by recursive descent; one function a level of precedence.
//
// Thread: one parse. Failure: see parser.h.
#pragma once

#include <memory>

#include "engine/chat_template/token_stream.h"

namespace baton::engine::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(&stream) {}

  Result<NodePtr> expression(bool with_condition = true);
  // `a, b` is a tuple, `a` alone is `a`. `with_condition` false: `x if y` is not taken.
  Result<NodePtr> tuple(bool with_condition = true, bool in_parentheses = false);
  // The target of an assignment or of a for: names, tuples of names, `ns.attribute`.
  Result<NodePtr> target(bool namespaces);
  // `name(args)|name…` at the start of a filter block or behind "|".
  Result<NodePtr> filters(NodePtr input, bool first_without_pipe);
  // Parameters of a macro: "(a, b=1)".
  Status parameters(Node& node);

 private:
  Result<NodePtr> condition();
  Result<NodePtr> disjunction();
  Result<NodePtr> conjunction();
  Result<NodePtr> negation();
  Result<NodePtr> comparison();
  Result<NodePtr> sum();
  Result<NodePtr> concat();
  Result<NodePtr> product();
  Result<NodePtr> power();
  Result<NodePtr> unary(bool with_filter);
  Result<NodePtr> primary();
  Result<NodePtr> postfix(NodePtr node);
  Result<NodePtr> filtered(NodePtr node);
  Result<NodePtr> subscript(NodePtr node);
  Result<NodePtr> call(NodePtr callee);
  Result<NodePtr> test(NodePtr input);
  Result<NodePtr> list();
  Result<NodePtr> dict();
  Result<NodePtr> simple_target(bool namespaces);
  Status arguments(Node& node, std::vector<NodePtr>& kids);
  Result<NodePtr> binary(std::string op, int line, NodePtr left, NodePtr right);

  TokenStream* stream_;
  int nesting_ = 0;
};

std::unique_ptr<Node> make_node(NodeKind kind, int line);

}  // namespace baton::engine::jinja
