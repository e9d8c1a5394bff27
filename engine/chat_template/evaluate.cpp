// Expressions of the template language. Statements: interpreter.cpp; operators: operators.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/chat_template/builtins.h"
#include "engine/chat_template/interpreter.h"
#include "engine/chat_template/operators.h"
#include "engine/chat_template/python_text.h"

namespace baton::engine::jinja {

Result<Value> Interpreter::evaluate(const Node& node, Scope& scope) {
  ++calls_;
  Status paid = calls_ > kMaxCalls ? template_error("calls nest too deeply") : charge(1);
  auto value = paid ? compute(node, scope) : Result<Value>(std::unexpected(paid.error()));
  --calls_;
  if (!value) {
    return std::unexpected(at_line(std::move(value.error()), node.line));
  }
  return value;
}

Result<Value> Interpreter::compute(const Node& node, Scope& scope) {
  switch (node.kind) {
    case NodeKind::Constant:
      return node.constant;
    case NodeKind::Name:
      return lookup(node, scope);
    case NodeKind::ListLiteral:
    case NodeKind::TupleLiteral:
    case NodeKind::DictLiteral:
      return literal(node, scope);
    case NodeKind::Attribute: {
      Value made;
      BATON_ASSIGN(const Value* object, operand(*node.kids[0], scope, made));
      return attribute(*object, node.name);
    }
    case NodeKind::Item: {
      Value made[2];
      BATON_ASSIGN(const Value* object, operand(*node.kids[0], scope, made[0]));
      BATON_ASSIGN(const Value* key, operand(*node.kids[1], scope, made[1]));
      return item(*object, *key);
    }
    case NodeKind::Slice:
      return slice(node, scope);
    case NodeKind::Call:
      return call_node(node, scope);
    case NodeKind::Filter: {
      BATON_ASSIGN(const Value input, evaluate(*node.kids[0], scope));
      return filter_node(node, input, scope);
    }
    case NodeKind::Test: {
      BATON_ASSIGN(const Value input, evaluate(*node.kids[0], scope));
      BATON_ASSIGN(const Arguments arguments, arguments_of(node, scope));
      BATON_ASSIGN(const bool holds, test(node.name, input, arguments));
      return Value(holds);
    }
    case NodeKind::Not: {
      BATON_ASSIGN(const Value inner, evaluate(*node.kids[0], scope));
      return Value(!inner.truthy());
    }
    case NodeKind::Negate:
    case NodeKind::Positive: {
      BATON_ASSIGN(const Value inner, evaluate(*node.kids[0], scope));
      return unary_operator(node.kind == NodeKind::Negate, inner);
    }
    case NodeKind::Binary: {
      BATON_ASSIGN(Value left, evaluate(*node.kids[0], scope));
      Value made;
      BATON_ASSIGN(const Value* right, operand(*node.kids[1], scope, made));
      return binary_operator(*this, node.name, std::move(left), *right);
    }
    case NodeKind::Concat:
      return concat(node, scope);
    case NodeKind::Compare:
      return compare_chain(node, scope);
    case NodeKind::And:
    case NodeKind::Or: {
      BATON_ASSIGN(Value left, evaluate(*node.kids[0], scope));
      const bool done = left.truthy() == (node.kind == NodeKind::Or);
      return done ? Result<Value>(std::move(left)) : evaluate(*node.kids[1], scope);
    }
    case NodeKind::Conditional: {
      BATON_ASSIGN(const Value when, evaluate(*node.kids[0], scope));
      if (when.truthy()) {
        return evaluate(*node.kids[1], scope);
      }
      return node.kids[2] ? evaluate(*node.kids[2], scope)
                          : Result<Value>(Undefined{"the inline if has no else and was false"});
    }
    default:
      return template_error("a statement stands where an expression should");
  }
}

const Value* Interpreter::find_name(std::string_view name, const Scope& scope) const {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    for (const auto& [known, value] : at->names) {
      if (known == name) {
        return &value;
      }
    }
  }
  return globals_->find(name);
}

const Value* Interpreter::field_of_name(const Node& node, const Scope& scope) const {
  const bool is_item = node.kind == NodeKind::Item && node.kids[1]->kind == NodeKind::Constant;
  if ((!is_item && node.kind != NodeKind::Attribute) || node.kids[0]->kind != NodeKind::Name) {
    return nullptr;
  }
  const Value* object = find_name(node.kids[0]->name, scope);
  const Dict* dict = object != nullptr ? object->dict() : nullptr;
  // One that may change could lose the field before the statement ends.
  if (dict == nullptr || !dict->frozen || (!is_item && is_dict_method(node.name))) {
    return nullptr;
  }
  return is_item ? dict->find(node.kids[1]->constant) : dict->find(node.name);
}

Result<const Value*> Interpreter::operand(const Node& node, Scope& scope, Value& made) {
  const Value* held = node.kind == NodeKind::Constant ? &node.constant
                      : node.kind == NodeKind::Name   ? find_name(node.name, scope)
                                                      : field_of_name(node, scope);
  if (held != nullptr) {
    BATON_TRY(charge(1));
    return held;
  }
  BATON_ASSIGN(made, evaluate(node, scope));
  return &made;
}

Result<Value> Interpreter::lookup(const Node& node, Scope& scope) {
  if (const Value* value = find_name(node.name, scope)) {
    return *value;
  }
  if (auto function = global_function(node.name)) {
    return *function;
  }
  return Value(Undefined{fmt::format("'{}' is undefined", node.name)});
}

Result<Value> Interpreter::literal(const Node& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.kids.size());
  for (const NodePtr& kid : node.kids) {
    BATON_ASSIGN(Value value, evaluate(*kid, scope));
    items.push_back(std::move(value));
  }
  if (node.kind != NodeKind::DictLiteral) {
    return make_list(std::move(items), node.kind == NodeKind::TupleLiteral);
  }
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    BATON_TRY(dict->set(std::move(items[i]), std::move(items[i + 1])));
  }
  return Value(std::move(dict));
}

namespace {

// Where a Python slice starts and stops, for a sequence of `size` items.
struct SliceRange {
  std::int64_t start, stop, step;
};

Result<SliceRange> slice_range(const Value parts[3], std::int64_t size) {
  std::int64_t numbers[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    if (parts[i].is_none()) {
      continue;
    }
    if (!parts[i].is_integer()) {
      return template_error("slice indices must be integers");
    }
    numbers[i] = parts[i].integer();
  }
  // A larger step gives the same, and adding it cannot overflow.
  const std::int64_t step = std::clamp(numbers[2], -size - 1, size + 1);
  if (step == 0) {
    return template_error("a slice step cannot be zero");
  }
  const std::int64_t low = step < 0 ? -1 : 0;
  const std::int64_t high = step < 0 ? size - 1 : size;
  const auto place = [&](int i, std::int64_t when_absent) {
    if (parts[i].is_none()) {
      return when_absent;
    }
    const std::int64_t number =
        numbers[i] < 0 ? std::max(numbers[i], -size - 1) + size : numbers[i];
    return std::clamp(number, low, high);
  };
  return SliceRange{place(0, step < 0 ? high : low), place(1, step < 0 ? low : high), step};
}

}  // namespace

Result<Value> Interpreter::slice(const Node& node, Scope& scope) {
  BATON_ASSIGN(const Value object, evaluate(*node.kids[0], scope));
  Value parts[3] = {None{}, None{}, None{}};
  for (int i = 0; i < 3; ++i) {
    if (const NodePtr& kid = node.kids[static_cast<std::size_t>(i) + 1]) {
      BATON_ASSIGN(parts[i], evaluate(*kid, scope));
    }
  }
  if (const Text* text = object.text()) {
    BATON_TRY(charge_text(text->size()));
    const auto size = static_cast<std::int64_t>(count_chars(text->view()));
    BATON_ASSIGN(const SliceRange range, slice_range(parts, size));
    if (range.step == 1) {
      const std::size_t begin = char_offset(text->view(), static_cast<std::size_t>(range.start));
      const std::size_t end = char_offset(text->view(), static_cast<std::size_t>(range.stop));
      return Value(text->slice(begin, std::max(begin, end)));
    }
    BATON_TRY(charge(text->size()));
    BATON_ASSIGN(const std::shared_ptr<List> chars, iterate(object));
    Text out;
    for (std::int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;
         i += range.step) {
      out.append(*chars->items[static_cast<std::size_t>(i)].text());
    }
    return Value(std::move(out));
  }
  const List* list = object.list();
  if (list == nullptr) {
    if (const auto* undefined = object.as<Undefined>()) {
      return template_error(undefined->what);
    }
    return Value(Undefined{fmt::format("'{}' cannot be sliced", object.type_name())});
  }
  BATON_ASSIGN(const SliceRange range,
               slice_range(parts, static_cast<std::int64_t>(list->items.size())));
  std::vector<Value> items;
  for (std::int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;
       i += range.step) {
    items.push_back(list->items[static_cast<std::size_t>(i)]);
  }
  BATON_TRY(charge(items.size()));
  return make_list(std::move(items), list->tuple);
}

Result<Value> Interpreter::compare_chain(const Node& node, Scope& scope) {
  Value made[2];
  BATON_ASSIGN(const Value* left, operand(*node.kids[0], scope, made[0]));
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    BATON_ASSIGN(const Value* right, operand(*node.kids[i + 1], scope, made[(i + 1) % 2]));
    BATON_TRY(charge(std::min(left->weight(), right->weight())));
    BATON_ASSIGN(const bool holds, compare_operator(*this, node.operators[i], *left, *right));
    if (!holds) {
      return Value(false);
    }
    left = right;
  }
  return Value(true);
}

Result<Value> Interpreter::concat(const Node& node, Scope& scope) {
  Text out;
  for (const NodePtr& kid : node.kids) {
    BATON_ASSIGN(const Value part, evaluate(*kid, scope));
    out.append(part.str());
    BATON_TRY(charge_text(out.size()));
  }
  return Value(std::move(out));
}

Result<Arguments> Interpreter::arguments_of(const Node& node, Scope& scope) {
  Arguments arguments;
  arguments.positional.reserve(node.kids.size());
  for (std::size_t i = 1; i < node.kids.size(); ++i) {
    BATON_ASSIGN(Value value, evaluate(*node.kids[i], scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : node.keywords) {
    BATON_ASSIGN(Value value, evaluate(*expression, scope));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Interpreter::call_node(const Node& node, Scope& scope) {
  BATON_ASSIGN(const Value callee, evaluate(*node.kids[0], scope));
  BATON_ASSIGN(const Arguments arguments, arguments_of(node, scope));
  return call(callee, arguments);
}

Result<Value> Interpreter::filter_node(const Node& node, const Value& input, Scope& scope) {
  // In a chain at the start of a filter block the innermost input is missing: it is `input`.
  Value actual = input;
  if (node.kids[0] && node.kids[0]->kind == NodeKind::Filter && is_open_chain(*node.kids[0])) {
    BATON_ASSIGN(actual, filter_node(*node.kids[0], input, scope));
  }
  BATON_ASSIGN(const Arguments arguments, arguments_of(node, scope));
  return filter(node.name, actual, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (const auto* undefined = callee.as<Undefined>()) {
    return template_error(undefined->what);
  }
  const auto* callable = callee.as<std::shared_ptr<const Callable>>();
  if (callable == nullptr) {
    return template_error(fmt::format("'{}' cannot be called", callee.type_name()));
  }
  const std::shared_ptr<const Callable> held = *callable;
  return held->call(*this, arguments);
}

Result<Value> Interpreter::filter(std::string_view name,
                                  const Value& input,
                                  const Arguments& arguments) {
  const FilterFunction function = find_filter(name);
  if (function == nullptr) {
    return template_error(fmt::format("no filter is named '{}'", name));
  }
  BATON_TRY(charge(input.weight()));
  return function(*this, input, arguments);
}

Result<bool> Interpreter::test(std::string_view name,
                               const Value& input,
                               const Arguments& arguments) {
  const TestFunction function = find_test(name);
  if (function == nullptr) {
    return template_error(fmt::format("no test is named '{}'", name));
  }
  BATON_TRY(charge(arguments.positional.empty() ? 1 : arguments.positional[0].weight()));
  return function(*this, input, arguments);
}

Result<Value> Interpreter::attribute(const Value& object, std::string_view name) {
  if (const auto* undefined = object.as<Undefined>()) {
    return template_error(undefined->what);
  }
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) {
    return loop_attribute(*loop, name);
  }
  if (auto found = method(object, name)) {
    return *found;
  }
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->find(name)) {
      return *value;
    }
  }
  return Value(
      Undefined{fmt::format("'{} object' has no attribute '{}'", object.type_name(), name)});
}

Result<Value> Interpreter::item(const Value& object, const Value& key) {
  if (const auto* undefined = object.as<Undefined>()) {
    return template_error(undefined->what);
  }
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->find(key)) {
      return *value;
    }
  } else if (key.is_integer()) {
    const std::int64_t index = key.integer();
    if (const List* list = object.list()) {
      const auto size = static_cast<std::int64_t>(list->items.size());
      const std::int64_t at = index < 0 ? index + size : index;
      if (at >= 0 && at < size) {
        return list->items[static_cast<std::size_t>(at)];
      }
    } else if (const Text* text = object.text()) {
      BATON_TRY(charge_text(text->size()));
      const auto size = static_cast<std::int64_t>(count_chars(text->view()));
      const std::int64_t at = index < 0 ? index + size : index;
      if (at >= 0 && at < size) {
        const std::size_t begin = char_offset(text->view(), static_cast<std::size_t>(at));
        const std::size_t rest = char_offset(text->view().substr(begin), 1);
        return Value(text->slice(begin, begin + rest));
      }
    }
  }
  if (key.text() != nullptr) {
    return attribute(object, key.text()->view());
  }
  return Value(Undefined{
      fmt::format("'{} object' has no element {}", object.type_name(), key.repr().str())});
}

}  // namespace baton::engine::jinja
