// Tests: what may follow `is`.
#include <fmt/format.h>

#include "engine/chat_template/builtins.h"
#include "engine/chat_template/method_table.h"
#include "engine/chat_template/operators.h"
#include "engine/chat_template/python_text.h"

namespace baton::engine::jinja {
namespace {

Result<Value> argument(const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return template_error("this test needs a value to compare with");
  }
  return arguments.positional[0];
}

template <bool (*holds)(const Value&)>
Result<bool> simple(Interpreter&, const Value& input, const Arguments&) {
  return holds(input);
}

bool defined(const Value& value) {
  return !value.is_undefined();
}
bool undefined(const Value& value) {
  return value.is_undefined();
}
bool none(const Value& value) {
  return value.is_none();
}
bool string(const Value& value) {
  return value.text() != nullptr;
}
bool mapping(const Value& value) {
  return value.dict() != nullptr && !value.dict()->is_namespace;
}
bool number(const Value& value) {
  return value.is_number();
}
bool integer(const Value& value) {
  return value.as<std::int64_t>() != nullptr;
}
bool real(const Value& value) {
  return value.as<double>() != nullptr;
}
bool boolean(const Value& value) {
  return value.as<bool>() != nullptr;
}
bool is_true(const Value& value) {
  return boolean(value) && *value.as<bool>();
}
bool is_false(const Value& value) {
  return boolean(value) && !*value.as<bool>();
}
bool callable(const Value& value) {
  return value.as<std::shared_ptr<const Callable>>() != nullptr;
}
// What has a length and items; an undefined value has both.
bool sequence(const Value& value) {
  return value.text() != nullptr || value.list() != nullptr || mapping(value) ||
         value.is_undefined();
}
bool iterable(const Value& value) {
  return sequence(value) || value.as<std::shared_ptr<Loop>>() != nullptr;
}
bool is_lower(const Value& value) {
  const Text text = value.str();
  return to_lower(text).view() == text.view() && to_upper(text).view() != text.view();
}
bool is_upper(const Value& value) {
  const Text text = value.str();
  return to_upper(text).view() == text.view() && to_lower(text).view() != text.view();
}

template <int parity>
Result<bool> even_or_odd(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN(const Value rest, binary_operator(interpreter, "%", input, Value(std::int64_t{2})));
  return rest.is_number() && rest.number() == parity;
}

Result<bool> divisible(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const Value by, argument(arguments));
  if (!input.is_integer() || !by.is_integer()) {
    return template_error("divisibleby needs integers");
  }
  BATON_ASSIGN(const Value rest, binary_operator(interpreter, "%", input, by));
  return rest.number() == 0;
}

// The operators as tests.
template <const char* op>
Result<bool> operation(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const Value other, argument(arguments));
  return compare_operator(interpreter, op, input, other);
}

constexpr char kEqual[] = "==";
constexpr char kUnequal[] = "!=";
constexpr char kLess[] = "<";
constexpr char kLessEqual[] = "<=";
constexpr char kGreater[] = ">";
constexpr char kGreaterEqual[] = ">=";
constexpr char kIn[] = "in";

Result<bool> same_as(Interpreter&, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const Value other, argument(arguments));
  if (input.list() != nullptr || input.dict() != nullptr) {
    return input.list() == other.list() && input.dict() == other.dict();
  }
  return input.held().index() == other.held().index() && equal(input, other);
}

Result<bool> is_filter(Interpreter&, const Value& input, const Arguments&) {
  return input.text() != nullptr && find_filter(input.text()->view()) != nullptr;
}

Result<bool> is_test(Interpreter&, const Value& input, const Arguments&) {
  return input.text() != nullptr && find_test(input.text()->view()) != nullptr;
}

constexpr Named<TestFunction> kTests[] = {
    {"defined", simple<defined>},
    {"undefined", simple<undefined>},
    {"none", simple<none>},
    {"string", simple<string>},
    {"mapping", simple<mapping>},
    {"sequence", simple<sequence>},
    {"iterable", simple<iterable>},
    {"number", simple<number>},
    {"integer", simple<integer>},
    {"float", simple<real>},
    {"boolean", simple<boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"callable", simple<callable>},
    {"lower", simple<is_lower>},
    {"upper", simple<is_upper>},
    {"even", even_or_odd<0>},
    {"odd", even_or_odd<1>},
    {"divisibleby", divisible},
    {"sameas", same_as},
    {"filter", is_filter},
    {"test", is_test},
    {"eq", operation<kEqual>},
    {"equalto", operation<kEqual>},
    {"==", operation<kEqual>},
    {"ne", operation<kUnequal>},
    {"!=", operation<kUnequal>},
    {"lt", operation<kLess>},
    {"lessthan", operation<kLess>},
    {"<", operation<kLess>},
    {"le", operation<kLessEqual>},
    {"<=", operation<kLessEqual>},
    {"gt", operation<kGreater>},
    {"greaterthan", operation<kGreater>},
    {">", operation<kGreater>},
    {"ge", operation<kGreaterEqual>},
    {">=", operation<kGreaterEqual>},
    {"in", operation<kIn>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  return find_in(kTests, name);
}

}  // namespace baton::engine::jinja
