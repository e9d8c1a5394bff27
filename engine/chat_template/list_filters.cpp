// Filters on lists, and those that pick or order items.
#include <fmt/format.h>

#include <algorithm>

#include "engine/chat_template/builtins.h"
#include "engine/chat_template/method_table.h"
#include "engine/chat_template/operators.h"
#include "engine/chat_template/python_text.h"

namespace baton::engine::jinja {
namespace {

Result<std::vector<Value>> items_of(Interpreter& interpreter, const Value& input) {
  BATON_ASSIGN(const std::shared_ptr<List> list, iterate(input));
  BATON_TRY(interpreter.charge(1 + list->items.size()));
  return list->items;
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN(std::vector<Value> items, items_of(interpreter, input));
  return make_list(std::move(items));
}

Result<Value> join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(std::vector<Value> items, items_of(interpreter, input));
  if (const Value* path = arguments.find(1, "attribute")) {
    for (Value& item : items) {
      BATON_ASSIGN(item, follow_path(interpreter, item, *path));
    }
  }
  const Value* separator = arguments.find(0, "d");
  return join_texts(interpreter, items, separator != nullptr ? separator->str() : Text(), false);
}

Result<Value> items(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_undefined()) {
    return make_list({});
  }
  if (input.dict() == nullptr || input.dict()->is_namespace) {
    return template_error("items needs a dict");
  }
  BATON_ASSIGN(const Value call, interpreter.attribute(input, "items"));
  return interpreter.call(call, {});
}

// select, reject, selectattr, rejectattr: the test's name and arguments follow the attribute. Here
// and in map whatever counts as false, none too, is an empty list.
template <bool keep, bool by_attribute>
Result<Value> pick(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.truthy()) {
    return make_list({});
  }
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  const std::size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) {
    return template_error("selectattr and rejectattr need an attribute");
  }
  std::string name;
  Arguments rest;
  if (arguments.positional.size() > first) {
    BATON_ASSIGN(const Text given, text_argument(arguments, first, "", "select"));
    name = given.str();
    rest.positional.assign(arguments.positional.begin() + first + 1, arguments.positional.end());
    rest.keywords = arguments.keywords;
  }
  std::vector<Value> kept;
  for (const Value& item : all) {
    Value subject = item;
    if (by_attribute) {
      BATON_ASSIGN(subject, follow_path(interpreter, item, arguments.positional[0]));
    }
    bool holds = subject.truthy();
    if (!name.empty()) {
      BATON_ASSIGN(holds, interpreter.test(name, subject, rest));
    }
    if (holds == keep) {
      kept.push_back(item);
    }
  }
  return make_list(std::move(kept));
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.truthy()) {
    return make_list({});
  }
  BATON_ASSIGN(std::vector<Value> all, items_of(interpreter, input));
  const Value* path = arguments.positional.empty() ? arguments.find(0, "attribute") : nullptr;
  if (path != nullptr) {
    const Value* otherwise = arguments.find(arguments.positional.size(), "default");
    for (Value& item : all) {
      BATON_ASSIGN(item, follow_path(interpreter, item, *path));
      if (item.is_undefined() && otherwise != nullptr) {
        item = *otherwise;
      }
    }
    return make_list(std::move(all));
  }
  BATON_ASSIGN(const Text name, text_argument(arguments, 0, "", "map"));
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.keywords = arguments.keywords;
  for (Value& item : all) {
    BATON_ASSIGN(item, interpreter.filter(name.view(), item, rest));
  }
  return make_list(std::move(all));
}

template <bool last>
Result<Value> end_item(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  if (all.empty()) {
    return Value(Undefined{"the sequence is empty, it has no first or last item"});
  }
  return last ? all.back() : all.front();
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN(std::vector<Value> all, items_of(interpreter, input));
  std::reverse(all.begin(), all.end());
  if (input.text() == nullptr) {
    return make_list(std::move(all));
  }
  return join_texts(interpreter, all, Text(), true);
}

// What sorting and comparing looks at: the attribute, in small letters unless told otherwise.
Result<Value> sort_key(Interpreter& interpreter,
                       const Value& item,
                       const Value* path,
                       bool case_sensitive) {
  Value key = item;
  if (path != nullptr && !path->is_none()) {
    BATON_ASSIGN(key, follow_path(interpreter, item, *path));
  }
  return key.text() != nullptr && !case_sensitive ? Value(to_lower(*key.text())) : key;
}

Result<Value> sort_by(Interpreter& interpreter,
                      std::vector<std::pair<Value, Value>> keyed,
                      bool descending) {
  std::size_t weight = 1;
  for (const auto& entry : keyed) {
    weight += entry.first.weight();
  }
  BATON_TRY(interpreter.charge(weight * 4));
  Status order;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const auto found = descending ? compare(b.first, a.first) : compare(a.first, b.first);
    if (!found && order) {
      order = std::unexpected(found.error());
    }
    return found.value_or(0) < 0;
  });
  BATON_TRY(order);
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (auto& entry : keyed) {
    sorted.push_back(std::move(entry.second));
  }
  return make_list(std::move(sorted));
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  const bool descending = flag_argument(arguments, 0, "reverse", false);
  const bool case_sensitive = flag_argument(arguments, 1, "case_sensitive", false);
  const Value* path = arguments.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : all) {
    BATON_ASSIGN(Value key, sort_key(interpreter, item, path, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  return sort_by(interpreter, std::move(keyed), descending);
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (input.dict() == nullptr || input.dict()->is_namespace) {
    return template_error("dictsort needs a dict");
  }
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value* by = arguments.find(1, "by");
  const bool by_value = by != nullptr && by->str().view() == "value";
  const bool descending = flag_argument(arguments, 2, "reverse", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict()->entries()) {
    BATON_ASSIGN(Value pair, make_list({key, value}, true));
    BATON_ASSIGN(Value order,
                 sort_key(interpreter, by_value ? value : key, nullptr, case_sensitive));
    keyed.emplace_back(std::move(order), std::move(pair));
  }
  return sort_by(interpreter, std::move(keyed), descending);
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : all) {
    BATON_ASSIGN(Value key, sort_key(interpreter, item, path, case_sensitive));
    BATON_TRY(interpreter.charge(1 + seen.size()));
    if (std::none_of(
            seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other); })) {
      seen.push_back(std::move(key));
      kept.push_back(item);
    }
  }
  return make_list(std::move(kept));
}

template <bool largest>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  Value best = Undefined{"no aggregated item, the sequence is empty"};
  Value best_key;
  for (std::size_t i = 0; i < all.size(); ++i) {
    BATON_ASSIGN(Value key, sort_key(interpreter, all[i], path, case_sensitive));
    int order = 1;
    if (i > 0) {
      BATON_ASSIGN(order, compare(key, best_key));
      order = largest ? order : -order;
    }
    if (order > 0) {
      best = all[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  const Value* path = arguments.find(0, "attribute");
  const Value* start = arguments.find(1, "start");
  Value total = start != nullptr ? *start : Value(std::int64_t{0});
  for (const Value& item : all) {
    Value part = item;
    if (path != nullptr && !path->is_none()) {
      BATON_ASSIGN(part, follow_path(interpreter, item, *path));
    }
    BATON_ASSIGN(total, binary_operator(interpreter, "+", std::move(total), part));
  }
  return total;
}

Result<Value> batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const std::vector<Value> all, items_of(interpreter, input));
  BATON_ASSIGN(const std::int64_t size, integer_argument(arguments, 0, "linecount", 0));
  const Value* fill = arguments.find(1, "fill_with");
  if (size < 1 || size > 100000) {
    return template_error("batch needs a size of at least 1");
  }
  const auto step = static_cast<std::size_t>(size);
  std::vector<Value> rows;
  for (std::size_t begin = 0; begin < all.size(); begin += step) {
    const std::size_t end = std::min(begin + step, all.size());
    std::vector<Value> row(all.begin() + static_cast<std::ptrdiff_t>(begin),
                           all.begin() + static_cast<std::ptrdiff_t>(end));
    if (fill != nullptr && !fill->is_none()) {
      BATON_TRY(interpreter.charge(step));
      row.resize(step, *fill);
    }
    BATON_ASSIGN(Value made, make_list(std::move(row)));
    rows.push_back(std::move(made));
  }
  return make_list(std::move(rows));
}

constexpr Named<FilterFunction> kListFilters[] = {
    {"list", list},
    {"join", join},
    {"items", items},
    {"select", pick<true, false>},
    {"reject", pick<false, false>},
    {"selectattr", pick<true, true>},
    {"rejectattr", pick<false, true>},
    {"map", map},
    {"first", end_item<false>},
    {"last", end_item<true>},
    {"reverse", reverse},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"batch", batch},
};

}  // namespace

FilterFunction find_list_filter(std::string_view name) {
  return find_in(kListFilters, name);
}

}  // namespace baton::engine::jinja
