// Filters on single values. Filters on lists: list_filters.cpp.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "engine/chat_template/builtins.h"
#include "engine/chat_template/json.h"
#include "engine/chat_template/method_table.h"
#include "engine/chat_template/operators.h"
#include "engine/chat_template/python_text.h"

namespace baton::engine::jinja {
namespace {

Result<Value> tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (const auto* undefined = input.as<Undefined>()) {
    return template_error(undefined->what);
  }
  JsonStyle style;
  style.ensure_ascii = flag_argument(arguments, 0, "ensure_ascii", false);
  const Value* indent = arguments.find(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    BATON_ASSIGN(const std::int64_t spaces, integer_argument(arguments, 1, "indent", 0));
    style.indent = static_cast<int>(std::clamp<std::int64_t>(spaces, 0, 32));
    style.item_separator.assign(1, ',');
  }
  if (const Value* separators = arguments.find(2, "separators");
      separators != nullptr && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr) {
      return template_error("tojson needs two strings as separators");
    }
    style.item_separator = pair->items[0].text()->str();
    style.key_separator = pair->items[1].text()->str();
    BATON_TRY(interpreter.charge(input.weight() *
                                 (1 + style.item_separator.size() + style.key_separator.size())));
  }
  style.sort_keys = flag_argument(arguments, 3, "sort_keys", false);
  BATON_TRY(interpreter.charge(input.weight() * (style.indent > 0 ? 8 : 1)));
  BATON_ASSIGN(Text text, to_json(input, style));
  BATON_TRY(interpreter.charge_text(text.size()));
  return Value(std::move(text));
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Text text = input.str();
  BATON_TRY(interpreter.charge_text(text.size()));
  const Value* chars = arguments.find(0, "chars");
  if (chars == nullptr || chars->is_none()) {
    return Value(strip(text, {}, true, true));
  }
  BATON_ASSIGN(const Text wanted, text_argument(arguments, 0, "chars", "trim"));
  BATON_TRY(interpreter.charge(1 + wanted.size() * text.size() / kWeightBytes));
  return Value(wanted.empty() ? text : strip(text, wanted.view(), true, true));
}

Result<Value> default_value(Interpreter&, const Value& input, const Arguments& arguments) {
  const bool replace =
      input.is_undefined() || (flag_argument(arguments, 1, "boolean", false) && !input.truthy());
  if (!replace) {
    return input;
  }
  const Value* value = arguments.find(0, "default_value");
  return value != nullptr ? *value : Value::own("");
}

Result<Value> string(Interpreter& interpreter, const Value& input, const Arguments&) {
  Text text = input.str();
  BATON_TRY(interpreter.charge_text(text.size()));
  return Value(std::move(text));
}

template <Text (*map)(const Text&)>
Result<Value> mapped(Interpreter& interpreter, const Value& input, const Arguments&) {
  const Text text = input.str();
  BATON_TRY(interpreter.charge_text(text.size()));
  return Value(map(text));
}

Text title_filter(const Text& text) {
  return title(text, true);
}

Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* from = arguments.find(0, "old");
  const Value* to = arguments.find(1, "new");
  if (from == nullptr || to == nullptr) {
    return template_error("replace needs two strings");
  }
  BATON_ASSIGN(const std::int64_t count, integer_argument(arguments, 2, "count", -1));
  return replace_text(interpreter, input.str(), from->str(), to->str(), count);
}

Result<Value> length_of(Interpreter&, const Value& input, const Arguments&) {
  BATON_ASSIGN(const std::int64_t size, length(input));
  return Value(size);
}

Result<Value> to_integer(Interpreter&, const Value& input, const Arguments& arguments) {
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value(std::int64_t{0});
  BATON_ASSIGN(const std::int64_t base, integer_argument(arguments, 1, "base", 10));
  if (input.is_number()) {
    const double number = input.number();
    if (const auto* integer = input.as<std::int64_t>()) {
      return *integer;
    }
    return std::fabs(number) < 9e18 ? Value(static_cast<std::int64_t>(number)) : otherwise;
  }
  if (input.text() == nullptr || base < 2 || base > 36) {
    return otherwise;
  }
  const Text text = strip(*input.text(), {}, true, true);
  std::string_view digits = text.view();
  digits.remove_prefix(!digits.empty() && digits.front() == '+' ? 1 : 0);
  std::int64_t number = 0;
  const char* last = digits.data() + digits.size();
  auto done = std::from_chars(digits.data(), last, number, static_cast<int>(base));
  if (!digits.empty() && done.ec == std::errc() && done.ptr == last) {
    return Value(number);
  }
  double real = 0;
  const auto read = std::from_chars(digits.data(), last, real);
  if (!digits.empty() && read.ec == std::errc() && read.ptr == last && std::fabs(real) < 9e18) {
    return Value(static_cast<std::int64_t>(real));
  }
  return otherwise;
}

Result<Value> to_float(Interpreter&, const Value& input, const Arguments& arguments) {
  if (input.is_number()) {
    return Value(input.number());
  }
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value(0.0);
  if (input.text() == nullptr) {
    return otherwise;
  }
  const Text text = strip(*input.text(), {}, true, true);
  double real = 0;
  const char* last = text.str().data() + text.size();
  const auto read = std::from_chars(text.str().data(), last, real);
  return !text.empty() && read.ec == std::errc() && read.ptr == last ? Value(real) : otherwise;
}

Result<Value> absolute(Interpreter&, const Value& input, const Arguments&) {
  return input.number() < 0 ? unary_operator(true, input) : unary_operator(false, input);
}

Result<Value> round_value(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!input.is_number()) {
    return template_error("round needs a number");
  }
  BATON_ASSIGN(const std::int64_t precision, integer_argument(arguments, 0, "precision", 0));
  const Value* method = arguments.find(1, "method");
  const std::string how = method != nullptr ? method->str().str() : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double number = input.number();
  if (how == "common") {
    if (precision >= 0 && precision < 16) {
      // Exact decimal rounding, halves to even, as Python rounds.
      const std::string text = fmt::format("{:.{}f}", number, precision);
      double rounded = 0;
      std::from_chars(text.data(), text.data() + text.size(), rounded);
      return Value(rounded);
    }
    return Value(std::nearbyint(number * scale) / scale);
  }
  if (how != "ceil" && how != "floor") {
    return template_error("round knows the methods common, ceil and floor");
  }
  return Value((how == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* width = arguments.find(0, "width");
  Text margin(std::string(4, ' '), false);
  if (width != nullptr && width->text() != nullptr) {
    margin = *width->text();
  } else {
    BATON_ASSIGN(const std::int64_t spaces, integer_argument(arguments, 0, "width", 4));
    margin =
        Text(std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(spaces, 0, 256)), ' '),
             false);
  }
  const bool first = flag_argument(arguments, 1, "first", false);
  const bool blank = flag_argument(arguments, 2, "blank", false);
  const Text text = input.str();
  Text out;
  std::size_t begin = 0;
  for (bool start = true; begin <= text.size(); start = false) {
    const std::size_t end = std::min(text.view().find('\n', begin), text.size());
    const bool wanted = start ? first : blank || end > begin;
    if (wanted) {
      out.append(margin);
    }
    out.append(text.slice(begin, std::min(end + 1, text.size())));
    BATON_TRY(interpreter.charge_text(margin.size()));
    if (out.size() > kMaxTextBytes) {
      return template_error("a text is too large");
    }
    if (end == text.size()) {
      break;
    }
    begin = end + 1;
  }
  return Value(std::move(out));
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return format_percent(interpreter, input.str(), arguments.positional);
}

Result<Value> word_count(Interpreter& interpreter, const Value& input, const Arguments&) {
  const Text text = input.str();
  BATON_TRY(interpreter.charge(text.size()));
  BATON_ASSIGN(const Value split, interpreter.attribute(Value(text), "split"));
  BATON_ASSIGN(const Value words, interpreter.call(split, {}));
  BATON_ASSIGN(const std::int64_t count, length(words));
  return Value(count);
}

Result<Value> attr(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN(const Text name, text_argument(arguments, 0, "name", "attr"));
  return interpreter.attribute(input, name.view());
}

Result<Value> same(Interpreter&, const Value& input, const Arguments&) {
  return input;
}

constexpr Named<FilterFunction> kFilters[] = {
    {"tojson", tojson},
    {"trim", trim},
    {"default", default_value},
    {"d", default_value},
    {"string", string},
    {"upper", mapped<to_upper>},
    {"lower", mapped<to_lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_filter>},
    {"replace", replace},
    {"length", length_of},
    {"count", length_of},
    {"int", to_integer},
    {"float", to_float},
    {"abs", absolute},
    {"round", round_value},
    {"indent", indent},
    {"format", format},
    {"wordcount", word_count},
    {"attr", attr},
    {"safe", same},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const FilterFunction found = find_in(kFilters, name);
  return found != nullptr ? found : find_list_filter(name);
}

}  // namespace baton::engine::jinja
