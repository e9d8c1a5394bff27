// Methods of lists and dicts, and binding a method to its value. Those of strings:
// text_methods.cpp.
#include <algorithm>

#include "engine/chat_template/method_table.h"

namespace baton::engine::jinja {
namespace {

std::unexpected<Error> frozen_error() {
  return template_error("a list or dict inside of another cannot be changed");
}

Result<Value> append(Interpreter& interpreter, List& list, const Arguments& arguments) {
  if (arguments.positional.size() != 1) {
    return template_error("append() needs one value");
  }
  BATON_TRY(interpreter.charge(1));
  BATON_TRY(list.insert(list.items.size(), arguments.positional[0]));
  return Value(None{});
}

Result<Value> insert(Interpreter& interpreter, List& list, const Arguments& arguments) {
  if (arguments.positional.size() != 2) {
    return template_error("insert() needs a place and a value");
  }
  BATON_ASSIGN(const std::int64_t place, integer_argument(arguments, 0, "", 0));
  const auto size = static_cast<std::int64_t>(list.items.size());
  BATON_TRY(interpreter.charge(1 + list.items.size()));
  const std::int64_t at = std::clamp<std::int64_t>(place < 0 ? place + size : place, 0, size);
  BATON_TRY(list.insert(static_cast<std::size_t>(at), arguments.positional[1]));
  return Value(None{});
}

Result<Value> extend(Interpreter& interpreter, List& list, const Arguments& arguments) {
  if (arguments.positional.size() != 1) {
    return template_error("extend() needs a list");
  }
  BATON_ASSIGN(const std::shared_ptr<List> more, iterate(arguments.positional[0]));
  const std::vector<Value> items = more->items;  // it may be this list
  BATON_TRY(interpreter.charge(items.size()));
  for (const Value& item : items) {
    BATON_TRY(list.insert(list.items.size(), item));
  }
  return Value(None{});
}

Result<Value> pop(Interpreter& interpreter, List& list, const Arguments& arguments) {
  BATON_ASSIGN(const std::int64_t place, integer_argument(arguments, 0, "", -1));
  const auto size = static_cast<std::int64_t>(list.items.size());
  const std::int64_t at = place < 0 ? place + size : place;
  if (at < 0 || at >= size) {
    return template_error("pop() from a place outside of the list");
  }
  BATON_TRY(interpreter.charge(1 + list.items.size()));
  Value taken = std::move(list.items[static_cast<std::size_t>(at)]);
  list.items.erase(list.items.begin() + static_cast<std::ptrdiff_t>(at));
  return taken;
}

constexpr Named<ListMethod> kListMethods[] = {
    {"append", append}, {"insert", insert}, {"extend", extend}, {"pop", pop}};

Result<Value> list_index(Interpreter& interpreter, List& list, const Arguments& arguments) {
  if (arguments.positional.size() != 1) {
    return template_error("index() needs a value");
  }
  BATON_TRY(interpreter.charge(list.weight));
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (equal(list.items[i], arguments.positional[0])) {
      return Value(static_cast<std::int64_t>(i));
    }
  }
  return template_error("index() finds no such item");
}

Result<Value> list_count(Interpreter& interpreter, List& list, const Arguments& arguments) {
  if (arguments.positional.size() != 1) {
    return template_error("count() needs a value");
  }
  BATON_TRY(interpreter.charge(list.weight));
  return Value(static_cast<std::int64_t>(
      std::count_if(list.items.begin(), list.items.end(), [&](const Value& each) {
        return equal(each, arguments.positional[0]);
      })));
}

constexpr Named<ListMethod> kListQuestions[] = {{"index", list_index}, {"count", list_count}};

Result<Value> get(Interpreter&, Dict& dict, const Arguments& arguments) {
  const Value* key = arguments.find(0, "key");
  if (key == nullptr) {
    return template_error("get() needs a key");
  }
  if (const Value* value = dict.find(*key)) {
    return *value;
  }
  const Value* otherwise = arguments.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value(None{});
}

template <bool with_keys, bool with_values>
Result<Value> list_entries(Interpreter& interpreter, Dict& dict, const Arguments&) {
  std::vector<Value> items;
  items.reserve(dict.entries().size());
  BATON_TRY(interpreter.charge(dict.entries().size()));
  for (const auto& [key, value] : dict.entries()) {
    if (with_keys && with_values) {
      BATON_ASSIGN(Value pair, make_list({key, value}, true));
      items.push_back(std::move(pair));
    } else {
      items.push_back(with_keys ? key : value);
    }
  }
  return make_list(std::move(items));
}

constexpr Named<DictMethod> kDictMethods[] = {{"get", get},
                                              {"items", list_entries<true, true>},
                                              {"keys", list_entries<true, false>},
                                              {"values", list_entries<false, true>}};

Result<Value> dict_pop(Interpreter& interpreter, Dict& dict, const Arguments& arguments) {
  const Value* key = arguments.find(0, "key");
  if (key == nullptr) {
    return template_error("pop() needs a key");
  }
  BATON_TRY(interpreter.charge(1 + dict.entries().size()));
  if (const Value* value = dict.find(*key)) {
    Value taken = *value;
    dict.erase(*key);
    return taken;
  }
  const Value* otherwise = arguments.find(1, "default");
  return otherwise != nullptr ? Result<Value>(*otherwise)
                              : template_error("pop() finds no such key");
}

Result<Value> update(Interpreter& interpreter, Dict& dict, const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    const Dict* other = arguments.positional[0].dict();
    if (other == nullptr) {
      return template_error("update() needs a dict");
    }
    const auto entries = other->entries();  // it may be this dict
    BATON_TRY(interpreter.charge(entries.size()));
    for (const auto& [key, value] : entries) {
      BATON_TRY(dict.set(key, value));
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    BATON_TRY(dict.set(Value::own(name), value));
  }
  return Value(None{});
}

constexpr Named<DictMethod> kDictChanges[] = {{"pop", dict_pop}, {"update", update}};

}  // namespace

bool is_dict_method(std::string_view name) {
  return find_in(kDictChanges, name) != nullptr || find_in(kDictMethods, name) != nullptr;
}

std::optional<Value> method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) {
    if (const TextMethod call = find_text_method(name)) {
      return make_function(std::string(name),
                           [object, call](Interpreter& interpreter, const Arguments& arguments) {
                             return call(interpreter, *object.text(), arguments);
                           });
    }
    return std::nullopt;
  }
  if (object.list() != nullptr) {
    const ListMethod change = find_in(kListMethods, name);
    const ListMethod call = change != nullptr ? change : find_in(kListQuestions, name);
    if (call == nullptr) {
      return std::nullopt;
    }
    return make_function(std::string(name),
                         [object, call, change](Interpreter& interpreter,
                                                const Arguments& arguments) -> Result<Value> {
                           List& list = *object.list();
                           return change != nullptr && (list.frozen || list.tuple)
                                      ? frozen_error()
                                      : call(interpreter, list, arguments);
                         });
  }
  if (object.dict() == nullptr || object.dict()->is_namespace) {
    return std::nullopt;
  }
  const DictMethod change = find_in(kDictChanges, name);
  const DictMethod call = change != nullptr ? change : find_in(kDictMethods, name);
  if (call == nullptr) {
    return std::nullopt;
  }
  return make_function(std::string(name),
                       [object, call, change](Interpreter& interpreter,
                                              const Arguments& arguments) -> Result<Value> {
                         Dict& dict = *object.dict();
                         return change != nullptr && dict.frozen
                                    ? frozen_error()
                                    : call(interpreter, dict, arguments);
                       });
}

}  // namespace baton::engine::jinja
