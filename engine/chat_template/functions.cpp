// Global functions, the loop object, and helpers that filters and methods share.
#include <fmt/format.h>

#include <ctime>

#include "engine/chat_template/builtins.h"

namespace baton::engine::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100000;

Result<Value> range(Interpreter& interpreter, const Arguments& arguments) {
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3) {
    return template_error("range() takes one to three numbers");
  }
  std::int64_t numbers[3] = {0, 0, 1};
  for (std::size_t i = 0; i < count; ++i) {
    BATON_ASSIGN(numbers[i], integer_argument(arguments, i, "", 0));
  }
  const std::int64_t start = count == 1 ? 0 : numbers[0];
  const std::int64_t stop = count == 1 ? numbers[0] : numbers[1];
  const std::int64_t step = numbers[2];
  if (step == 0) {
    return template_error("range() needs a step that is not zero");
  }
  const double steps =
      (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (steps > static_cast<double>(kMaxRange)) {
    return template_error(fmt::format("range() gives more than {} numbers", kMaxRange));
  }
  std::vector<Value> items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) {
      break;
    }
  }
  BATON_TRY(interpreter.charge(items.size()));
  return make_list(std::move(items));
}

Result<Value> make_dict(Interpreter& interpreter, const Arguments& arguments, bool as_namespace) {
  auto dict = std::make_shared<Dict>();
  dict->is_namespace = as_namespace;
  if (as_namespace) {
    interpreter.keep(dict);
  }
  if (!arguments.positional.empty()) {
    if (const Dict* given = arguments.positional[0].dict()) {
      for (const auto& [key, value] : given->entries()) {
        BATON_TRY(dict->set(key, value));
      }
    } else {
      BATON_ASSIGN(const std::shared_ptr<List> pairs, iterate(arguments.positional[0]));
      for (const Value& pair : pairs->items) {
        if (pair.list() == nullptr || pair.list()->items.size() != 2) {
          return template_error("dict() needs pairs");
        }
        BATON_TRY(dict->set(pair.list()->items[0], pair.list()->items[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    BATON_TRY(dict->set(Value::own(name), value));
  }
  return Value(std::move(dict));
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN(const Text format, text_argument(arguments, 0, "format", "strftime_now"));
  const std::time_t seconds = interpreter.unix_seconds();
  std::tm parts{};
  if (format.size() > 256 || gmtime_r(&seconds, &parts) == nullptr) {
    return template_error("strftime_now() cannot print this");
  }
  char buffer[1024];
  const std::size_t size = std::strftime(buffer, sizeof(buffer), format.str().c_str(), &parts);
  return Value(Text(std::string(buffer, size), format.any_foreign()));
}

Result<Value> loop_cycle(const std::shared_ptr<Loop>& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return template_error("loop.cycle() needs values");
  }
  return arguments.positional[loop->index % arguments.positional.size()];
}

Result<Value> loop_changed(const std::shared_ptr<Loop>& loop, const Arguments& arguments) {
  std::vector<Value> now;
  for (const Value& value : arguments.positional) {
    BATON_ASSIGN(Value frozen, freeze(value));
    now.push_back(std::move(frozen));
  }
  const bool changed = !std::equal(
      now.begin(), now.end(), loop->last_changed.begin(), loop->last_changed.end(), equal);
  loop->last_changed = std::move(now);
  return Value(changed);
}

}  // namespace

Value make_function(std::string name,
                    std::function<Result<Value>(Interpreter&, const Arguments&)> call) {
  auto made = std::make_shared<Callable>();
  made->name = std::move(name);
  made->call = std::move(call);
  return Value(std::shared_ptr<const Callable>(std::move(made)));
}

std::optional<Value> global_function(std::string_view name) {
  if (name == "range") {
    return make_function("range", range);
  }
  if (name == "dict" || name == "namespace") {
    return make_function(
        std::string(name),
        [is_namespace = name == "namespace"](Interpreter& interpreter, const Arguments& arguments)
            -> Result<Value> { return make_dict(interpreter, arguments, is_namespace); });
  }
  if (name == "raise_exception") {
    return make_function(
        "raise_exception", [](Interpreter&, const Arguments& arguments) -> Result<Value> {
          const Value* message = arguments.find(0, "message");
          return template_error(message != nullptr ? message->str().str() : "raise_exception()");
        });
  }
  if (name == "strftime_now") {
    return make_function("strftime_now", strftime_now);
  }
  return std::nullopt;
}

Result<Value> loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop->index);
  const auto size = static_cast<std::int64_t>(loop->items->items.size());
  const auto neighbour = [&](std::int64_t at, std::string_view what) -> Value {
    if (at < 0 || at >= size) {
      return Undefined{fmt::format("there is no {} item", what)};
    }
    return loop->items->items[static_cast<std::size_t>(at)];
  };
  if (name == "index") {
    return Value(index + 1);
  }
  if (name == "index0") {
    return Value(index);
  }
  if (name == "revindex") {
    return Value(size - index);
  }
  if (name == "revindex0") {
    return Value(size - index - 1);
  }
  if (name == "first") {
    return Value(index == 0);
  }
  if (name == "last") {
    return Value(index + 1 == size);
  }
  if (name == "length") {
    return Value(size);
  }
  if (name == "depth") {
    return Value(loop->level);
  }
  if (name == "depth0") {
    return Value(loop->level - 1);
  }
  if (name == "previtem") {
    return neighbour(index - 1, "previous");
  }
  if (name == "nextitem") {
    return neighbour(index + 1, "next");
  }
  if (name == "cycle" || name == "changed") {
    return make_function(
        std::string(name),
        [loop, cycle = name == "cycle"](Interpreter&, const Arguments& arguments) -> Result<Value> {
          return cycle ? loop_cycle(loop, arguments) : loop_changed(loop, arguments);
        });
  }
  return Value(Undefined{fmt::format("'loop' has no attribute '{}'", name)});
}

bool is_open_chain(const Node& filter) {
  const Node* at = &filter;
  while (at != nullptr && at->kind == NodeKind::Filter) {
    at = at->kids[0].get();
  }
  return at == nullptr;
}

Result<Text> text_argument(const Arguments& arguments,
                           std::size_t place,
                           std::string_view name,
                           std::string_view function) {
  const Value* value = arguments.find(place, name);
  if (value == nullptr || value->text() == nullptr) {
    return template_error(fmt::format("{}() needs a string, found {}",
                                      function,
                                      value != nullptr ? value->type_name() : "nothing"));
  }
  return *value->text();
}

Result<std::int64_t> integer_argument(const Arguments& arguments,
                                      std::size_t place,
                                      std::string_view name,
                                      std::int64_t when_absent) {
  const Value* value = arguments.find(place, name);
  if (value == nullptr || value->is_none()) {
    return when_absent;
  }
  if (!value->is_integer()) {
    return template_error(fmt::format("an integer is needed, found {}", value->type_name()));
  }
  return value->integer();
}

bool flag_argument(const Arguments& arguments,
                   std::size_t place,
                   std::string_view name,
                   bool when_absent) {
  const Value* value = arguments.find(place, name);
  return value != nullptr ? value->truthy() : when_absent;
}

Result<Value> replace_text(Interpreter& interpreter,
                           const Text& text,
                           const Text& from,
                           const Text& to,
                           std::int64_t count) {
  const std::string_view all = text.view();
  Text out;
  std::size_t at = 0;
  if (from.empty()) {
    // Python puts `to` before every character and at the end.
    while (count != 0 && at < all.size()) {
      std::size_t end = at + 1;
      while (end < all.size() && (static_cast<unsigned char>(all[end]) & 0xC0) == 0x80) {
        ++end;
      }
      out.append(to);
      out.append(text.slice(at, end));
      BATON_TRY(interpreter.charge_text(to.size()));
      BATON_TRY(interpreter.charge(1));
      if (out.size() > kMaxTextBytes) {
        return template_error("a text is too large");
      }
      at = end;
      --count;
    }
    out.append(text.slice(at, all.size()));
    if (count != 0) {
      out.append(to);
    }
    return Value(std::move(out));
  }
  while (count != 0) {
    const std::size_t found = all.find(from.view(), at);
    if (found == std::string_view::npos) {
      break;
    }
    out.append(text.slice(at, found));
    out.append(to);
    BATON_TRY(interpreter.charge_text(to.size()));
    if (out.size() > kMaxTextBytes) {
      return template_error("a text is too large");
    }
    at = found + from.size();
    --count;
  }
  out.append(text.slice(at, all.size()));
  BATON_TRY(interpreter.charge_text(out.size()));
  return Value(std::move(out));
}

Result<Value> join_texts(Interpreter& interpreter,
                         const std::vector<Value>& items,
                         const Text& separator,
                         bool only_strings) {
  Text out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (only_strings && items[i].text() == nullptr) {
      return template_error(
          fmt::format("join() needs strings, item {} is {}", i, items[i].type_name()));
    }
    if (i > 0) {
      out.append(separator);
    }
    const Text part = items[i].str();
    out.append(part);
    BATON_TRY(interpreter.charge(1 + (part.size() + separator.size()) / kWeightBytes));
    if (out.size() > kMaxTextBytes) {
      return template_error("a text is too large");
    }
  }
  return Value(std::move(out));
}

Result<Value> follow_path(Interpreter& interpreter, const Value& object, const Value& path) {
  if (path.text() == nullptr) {
    return interpreter.item(object, path);
  }
  Value at = object;
  std::string_view rest = path.text()->view();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    const Value key =
        number ? Value(static_cast<std::int64_t>(std::stoll(part))) : Value::own(part);
    BATON_ASSIGN(at, interpreter.item(at, key));
    if (dot == std::string_view::npos) {
      return at;
    }
    rest = rest.substr(dot + 1);
  }
}

}  // namespace baton::engine::jinja
