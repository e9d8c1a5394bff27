// The filters, tests, global functions and methods that templates may use.
//
// Thread: as the interpreter that calls them. Failure: errors without a line, which it adds.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "engine/chat_template/interpreter.h"

namespace baton::engine::jinja {

using FilterFunction = Result<Value> (*)(Interpreter&, const Value& input, const Arguments&);
using TestFunction = Result<bool> (*)(Interpreter&, const Value& input, const Arguments&);

// Null when there is none of that name.
FilterFunction find_filter(std::string_view name);
FilterFunction find_list_filter(std::string_view name);
TestFunction find_test(std::string_view name);

// range, namespace, dict, raise_exception, strftime_now …
std::optional<Value> global_function(std::string_view name);
// A method of a string, list or dict, bound to it.
std::optional<Value> method(const Value& object, std::string_view name);
bool is_dict_method(std::string_view name);
// loop.index and the like.
Result<Value> loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name);

// True for filters without an input at their innermost: they stand at the start of a filter block.
bool is_open_chain(const Node& filter);

// Arguments by place or name; errors name the function.
Result<Text> text_argument(const Arguments& arguments,
                           std::size_t place,
                           std::string_view name,
                           std::string_view function);
Result<std::int64_t> integer_argument(const Arguments& arguments,
                                      std::size_t place,
                                      std::string_view name,
                                      std::int64_t when_absent);
bool flag_argument(const Arguments& arguments,
                   std::size_t place,
                   std::string_view name,
                   bool when_absent);
Value make_function(std::string name,
                    std::function<Result<Value>(Interpreter&, const Arguments&)> call);

// Shared by methods and filters.
Result<Value> replace_text(Interpreter& interpreter,
                           const Text& text,
                           const Text& from,
                           const Text& to,
                           std::int64_t count);
Result<Value> join_texts(Interpreter& interpreter,
                         const std::vector<Value>& items,
                         const Text& separator,
                         bool only_strings);
// Follows "a.b.0" or an index through `object`.
Result<Value> follow_path(Interpreter& interpreter, const Value& object, const Value& path);

}  // namespace baton::engine::jinja
