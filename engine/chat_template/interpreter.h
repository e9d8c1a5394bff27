// Runs a syntax tree: statements append to an output, expressions give values. Work, output, depth
// of calls and size of values are bounded, so that a hostile template ends with an error.
//
// Thread: one rendering on one thread. Failure: InvalidArgument with the line.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "engine/chat_template/ast.h"
#include "engine/chat_template/value.h"

namespace baton::engine::jinja {

inline constexpr std::size_t kMaxWork = 4U << 20;        // steps, and kWeightBytes of text each
inline constexpr std::size_t kMaxTextBytes = 16U << 20;  // of one string, and of the output
inline constexpr int kMaxCalls = 320;                    // nested evaluations

// Names of one block; looking up goes on in the parent.
struct Scope {
  Scope* parent = nullptr;
  // Views of names in the tree; few in most blocks.
  boost::container::small_vector<std::pair<std::string_view, Value>, 4> names;

  void set(std::string_view name, Value value);
};

class Interpreter {
 public:
  // `unix_seconds`: the time that strftime_now gives, in UTC.
  Interpreter(const Dict& globals, std::int64_t unix_seconds)
      : globals_(&globals), unix_seconds_(unix_seconds) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  Result<Text> run(const Node& root);

  // For the built-in functions:
  Result<Value> attribute(const Value& object, std::string_view name);
  Result<Value> item(const Value& object, const Value& key);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> filter(std::string_view name, const Value& input, const Arguments& arguments);
  Result<bool> test(std::string_view name, const Value& input, const Arguments& arguments);
  // Counts work that grows with a value's weight or a text's size.
  Status charge(std::size_t work);
  Status charge_text(std::size_t bytes);
  std::int64_t unix_seconds() const { return unix_seconds_; }
  // A namespace may hold itself: the interpreter keeps each, and empties it at the end.
  void keep(std::shared_ptr<Dict> space) { namespaces_.push_back(std::move(space)); }

 private:
  enum class Flow : std::uint8_t { Next, Break, Continue };
  class Entered;

  Result<Flow> execute(const Node& node, Scope& scope);
  Result<Flow> run_statement(const Node& node, Scope& scope);
  Result<Flow> run_for(const Node& node, Scope& scope);
  Status run_call_block(const Node& node, Scope& scope);
  Result<std::shared_ptr<List>> loop_items(const Node& node, Scope& scope);
  // Output of `body` as a value; `break` does not leave it.
  Result<Text> capture(const Node& body, Scope& scope);
  Status assign(const Node& target, const Value& value, Scope& scope);
  Value make_macro(const Node& node, Scope* scope, std::shared_ptr<const bool> alive);
  Result<Value> call_macro(const Node& node, Scope& parent, const Arguments& arguments);
  Status print(const Value& value);
  // Prints a sum of texts part by part: a long one is not copied into the sum first. What is no
  // text is given back unprinted.
  Result<std::optional<Value>> print_sum(const Node& node, Scope& scope);

  Result<Value> evaluate(const Node& node, Scope& scope);
  Result<Value> compute(const Node& node, Scope& scope);
  // Null: no name of a scope, nor of the request.
  const Value* find_name(std::string_view name, const Scope& scope) const;
  // Of `name['field']` or `name.field`, where it is to be had without a copy; or null.
  const Value* field_of_name(const Node& node, const Scope& scope) const;
  // The value of an expression, uncopied where it is a constant, has a name or is a field of one
  // that has; else it is put in `made`. It stands until the statement ends: expressions change no
  // names.
  Result<const Value*> operand(const Node& node, Scope& scope, Value& made);
  Result<Value> lookup(const Node& node, Scope& scope);
  Result<Value> literal(const Node& node, Scope& scope);
  Result<Value> slice(const Node& node, Scope& scope);
  Result<Value> compare_chain(const Node& node, Scope& scope);
  Result<Value> concat(const Node& node, Scope& scope);
  Result<Value> call_node(const Node& node, Scope& scope);
  Result<Value> filter_node(const Node& node, const Value& input, Scope& scope);
  Result<Arguments> arguments_of(const Node& node, Scope& scope);
  // Puts the line before a message that has none.
  static Error at_line(Error error, int line);

  const Dict* globals_;
  std::int64_t unix_seconds_;
  Scope root_;
  std::vector<std::shared_ptr<Dict>> namespaces_;
  Text* out_ = nullptr;
  std::size_t work_ = 0;
  int calls_ = 0;
  std::int64_t loops_ = 0;  // running now, one in another
};

}  // namespace baton::engine::jinja
