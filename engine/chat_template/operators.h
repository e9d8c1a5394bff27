// Arithmetic, joining and comparing of values, as Python does it.
//
// Thread: as the interpreter. Failure: errors without a line.
#pragma once

#include <string_view>

#include "engine/chat_template/interpreter.h"

namespace baton::engine::jinja {

Result<Value> unary_operator(bool negate, const Value& value);
// + - * / // % **
Result<Value> binary_operator(Interpreter& interpreter,
                              std::string_view op,
                              Value left,
                              const Value& right);
// == != < <= > >= in, not in
Result<bool> compare_operator(Interpreter& interpreter,
                              std::string_view op,
                              const Value& left,
                              const Value& right);
// '%s' % x, and the filter `format`.
Result<Value> format_percent(Interpreter& interpreter,
                             const Text& pattern,
                             const std::vector<Value>& values);

}  // namespace baton::engine::jinja
