// The syntax tree of a template: nodes of one shape, whose kind says what the parts mean.
//
// Thread: const after parsing. Failure: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template/value.h"

namespace baton::engine::jinja {

// Behind each kind: what `kids` holds, and other parts used. "?" marks a kid that may be null.
enum class NodeKind : std::uint8_t {
  // expressions
  Constant,     // constant
  Name,         // name
  ListLiteral,  // items
  TupleLiteral,
  DictLiteral,  // key, value, key, value …
  Attribute,    // object; name
  Item,         // object, key
  Slice,        // object, start?, stop?, step?
  Call,         // callee, arguments …; keywords
  Filter,       // input? (null in a filter block), arguments …; name, keywords
  Test,         // input, arguments …; name, keywords
  Not,
  Negate,
  Positive,
  Binary,       // left, right; name is the operator
  Concat,       // two or more
  Compare,      // first, second …; operators between them
  And,          // left, right
  Or,           // left, right
  Conditional,  // condition, value, other?
  // statements
  Data,          // constant
  Print,         // expressions …
  Sequence,      // statements …
  If,            // condition, body, condition, body …, else? (odd count: the last is else)
  For,           // target, items, filter?, body, else?
  Set,           // target, value
  SetBlock,      // target, body, filter?
  Macro,         // body; name, keywords are the parameters with their defaults (null: none)
  CallBlock,     // call, body; keywords as in Macro
  FilterBlock,   // filter, body
  With,          // target, value, target, value …, body
  Scope,         // body, in a scope of its own
  NamespaceSet,  // as a target: name is the namespace, constant the attribute
  Break,
  Continue
};

struct Node;
using NodePtr = std::unique_ptr<const Node>;

struct Node {
  NodeKind kind = NodeKind::Constant;
  int line = 0;
  int depth = 1;  // levels of nodes below and including this
  std::string name;
  Value constant;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> keywords;
  std::vector<std::string> operators;
};

}  // namespace baton::engine::jinja
