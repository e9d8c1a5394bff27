// Values of the template language, as Python has them: undefined, none, bool, int, float, string,
// list or tuple, dict or namespace, loop object, callable.
//
// Lists and dicts are shared by reference, and what is inside of one is frozen: putting a list into
// a list puts a copy there (a frozen one is shared). So no value can hold itself, and depth and
// weight of every value are known and bounded, which bounds every walk. Namespaces, loop objects
// and functions cannot be put into lists and dicts; a namespace holds anything, also itself, and is
// emptied when the rendering ends.
//
// Thread: values of one rendering belong to its thread. Failure: as the calls say; messages are
// sentences without a line, which the interpreter adds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "engine/chat_template/text.h"

namespace baton::engine::jinja {

class Value;
class Interpreter;
struct List;
class Dict;
struct Loop;
struct Callable;

struct Undefined {
  std::string what;  // "'x' is undefined", said when it is used
};
struct None {};

inline constexpr int kMaxNesting = 64;
// Of a value with all that it holds, in units of kWeightBytes bytes of text or one item.
inline constexpr std::size_t kMaxWeight = 2U << 20;
inline constexpr std::size_t kWeightBytes = 16;

class Value {
 public:
  using Variant = std::variant<Undefined,
                               None,
                               bool,
                               std::int64_t,
                               double,
                               Text,
                               std::shared_ptr<List>,
                               std::shared_ptr<Dict>,
                               std::shared_ptr<Loop>,
                               std::shared_ptr<const Callable>>;
  Value() = default;
  template <class T>
  requires std::constructible_from<Variant, T&&> &&
      (!std::same_as<std::decay_t<T>, Value>)Value(T&& held)
      : held_(std::forward<T>(held)) {}  // NOLINT(google-explicit-constructor)
  // Text of the template itself.
  static Value own(std::string text) { return Value(Text(std::move(text), false)); }

  template <class T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  const Text* text() const { return std::get_if<Text>(&held_); }
  // REQUIRES: text().
  Text take_text() && { return std::move(std::get<Text>(held_)); }
  List* list() const;
  Dict* dict() const;
  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  const Variant& held() const { return held_; }

  bool truthy() const;
  // What Python's str() and repr() give.
  Text str() const;
  Text repr() const;
  // The type's name in messages.
  std::string_view type_name() const;
  // Numbers of any kind; bool counts as 0 and 1.
  bool is_number() const;
  double number() const;
  // int or bool.
  bool is_integer() const;
  // REQUIRES: is_integer().
  std::int64_t integer() const;
  // Levels of lists and dicts below and including this.
  int depth() const;
  std::size_t weight() const;

 private:
  Variant held_;
};

struct List {
  std::vector<Value> items;  // change through `insert` alone, or by erasing
  bool tuple = false;
  bool frozen = false;
  int depth = 1;
  std::size_t weight = 1;

  // REQUIRES: at <= items.size().
  Status insert(std::size_t at, Value item);
};

// Insertion-ordered. Large ones find string keys through a hash table.
class Dict {
 public:
  bool is_namespace = false;
  bool frozen = false;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Freezes the value, except in a namespace.
  Status set(Value key, Value value);
  bool erase(const Value& key);
  void clear();
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth() const { return depth_; }
  std::size_t weight() const { return weight_; }

 private:
  std::size_t index_of(const Value& key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> by_text_;  // filled beyond a few entries
  int depth_ = 1;
  std::size_t weight_ = 1;  // erased entries count on
};

// State of a running `for`.
struct Loop {
  std::shared_ptr<List> items;
  std::size_t index = 0;
  std::int64_t level = 1;           // of nested loops
  std::vector<Value> last_changed;  // arguments of loop.changed() before; empty: never called
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The argument at `position` or of that name; null when absent.
  const Value* find(std::size_t position, std::string_view name) const;
};

struct Callable {
  std::string name;
  std::function<Result<Value>(Interpreter&, const Arguments&)> call;
};

// A list of these items, frozen. Fails when they nest too deeply, weigh too much, or cannot be
// held.
Result<Value> make_list(std::vector<Value> items, bool tuple = false);
// The value as it may stand inside of a list or dict.
Result<Value> freeze(Value value);

bool equal(const Value& left, const Value& right);
// Negative, zero or positive; fails on types that have no order.
Result<int> compare(const Value& left, const Value& right);
Result<bool> contains(const Value& container, const Value& item);
// The items a `for` runs over: characters of strings, keys of dicts.
Result<std::shared_ptr<List>> iterate(const Value& value);
// len(); fails on numbers and the like.
Result<std::int64_t> length(const Value& value);

// A failure without a line.
inline std::unexpected<Error> template_error(std::string message) {
  return fail(ErrorCode::InvalidArgument, std::move(message));
}

}  // namespace baton::engine::jinja
