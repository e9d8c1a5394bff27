#include "engine/chat_template/operators.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "engine/chat_template/python_text.h"

namespace baton::engine::jinja {
namespace {

std::unexpected<Error> unsupported(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (const auto* undefined = value->as<Undefined>()) {
      return template_error(undefined->what);
    }
  }
  return template_error(
      fmt::format("'{}' does not work on '{}' and '{}'", op, left.type_name(), right.type_name()));
}

Result<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return template_error("a number is too large");
    }
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) {
      return template_error("a number is too large");
    }
  }
  return Value(result);
}

Result<Value> integer_operator(char op, bool doubled, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      if (doubled) {
        return integer_power(a, b);
      }
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    default: {
      if (b == 0) {
        return template_error("division by zero");
      }
      if (op == '/' && !doubled) {
        return Value(static_cast<double>(a) / static_cast<double>(b));
      }
      if (b == -1) {  // the one quotient that can overflow
        if (op == '%') {
          return Value(std::int64_t{0});
        }
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      // Python rounds down, and a remainder has the divisor's sign.
      const bool adjust = a % b != 0 && (a < 0) != (b < 0);
      result = op == '%' ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
      break;
    }
  }
  if (overflow) {
    return template_error("a number is too large");
  }
  return Value(result);
}

Result<Value> real_operator(char op, bool doubled, double a, double b) {
  switch (op) {
    case '+':
      return Value(a + b);
    case '-':
      return Value(a - b);
    case '*':
      return Value(doubled ? std::pow(a, b) : a * b);
    default:
      break;
  }
  if (b == 0) {
    return template_error("division by zero");
  }
  if (op == '/') {
    return Value(doubled ? std::floor(a / b) : a / b);
  }
  const double rest = std::fmod(a, b);
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Result<Value> repeat(Interpreter& interpreter, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (count > kMaxTextBytes) {
    return template_error("a repetition is too large");
  }
  if (const Text* text = value.text()) {
    BATON_TRY(interpreter.charge_text(text->size() * count));
    Text out;
    for (std::size_t i = 0; i < count && !text->empty(); ++i) {
      out.append(*text);
    }
    return Value(std::move(out));
  }
  const List& list = *value.list();
  BATON_TRY(interpreter.charge(list.items.size() * count));
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && !list.items.empty(); ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.tuple);
}

// "%-10.3s": at most 3 characters, then spaces up to 10 on the right (left without "-").
Result<Text> format_text(std::string_view spec, const Text& text) {
  const std::size_t dot = spec.find('.');
  const std::string_view head = spec.substr(0, dot);
  const auto number = [](std::string_view digits) {
    std::size_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  Text out = text;
  if (dot != std::string_view::npos) {
    out = text.slice(0, char_offset(text.view(), number(spec.substr(dot + 1))));
  }
  const std::size_t digits = std::min(head.find_first_of("123456789"), head.size());
  const std::size_t width = number(head.substr(digits));
  const std::size_t size = count_chars(out.view());
  if (size >= width) {
    return out;
  }
  const std::string padding(width - size, ' ');
  if (head.find('-') != std::string_view::npos) {
    out.append(padding, false);
    return out;
  }
  Text padded(padding, false);
  padded.append(out);
  return padded;
}

// The text of one "%…" whose flags and width are in `spec`, up to the letter.
Result<Text> format_one(std::string_view spec, char letter, const Value& value) {
  if (spec.size() > 6) {
    return template_error("a format is too long");
  }
  if (letter == 's' || letter == 'r') {
    return format_text(spec, letter == 's' ? value.str() : value.repr());
  }
  if (!value.is_number()) {
    return template_error(fmt::format("%{} needs a number, not {}", letter, value.type_name()));
  }
  const bool real = letter == 'f';
  if (!real && value.as<double>() != nullptr && !(std::fabs(value.number()) < 9e18)) {
    return template_error("a number is too large");
  }
  const std::string form = fmt::format("%{}{}{}", spec, real ? "" : "l", letter);
  const long whole = value.is_integer() ? value.integer() : static_cast<long>(value.number());
  char buffer[512];
  const int size = real ? std::snprintf(buffer, sizeof(buffer), form.c_str(), value.number())
                        : std::snprintf(buffer, sizeof(buffer), form.c_str(), whole);
  if (size < 0 || static_cast<std::size_t>(size) >= sizeof(buffer)) {
    return template_error("a formatted number is too long");
  }
  return Text(std::string(buffer, static_cast<std::size_t>(size)), false);
}

}  // namespace

Result<Value> unary_operator(bool negate, const Value& value) {
  if (!value.is_number()) {
    if (const auto* undefined = value.as<Undefined>()) {
      return template_error(undefined->what);
    }
    return template_error(fmt::format("a sign does not work on '{}'", value.type_name()));
  }
  if (const auto* real = value.as<double>()) {
    return Value(negate ? -*real : *real);
  }
  return integer_operator(negate ? '-' : '+', false, 0, value.integer());
}

Result<Value> binary_operator(Interpreter& interpreter,
                              std::string_view op,
                              Value left,
                              const Value& right) {
  if (op == "%" && left.text() != nullptr) {
    const List* list = right.list();
    return format_percent(interpreter,
                          *left.text(),
                          list != nullptr && list->tuple ? list->items : std::vector<Value>{right});
  }
  if (left.is_number() && right.is_number()) {
    const bool doubled = op.size() == 2;
    return left.is_integer() && right.is_integer()
               ? integer_operator(op[0], doubled, left.integer(), right.integer())
               : real_operator(op[0], doubled, left.number(), right.number());
  }
  if (op == "*" && right.is_integer() && (left.text() != nullptr || left.list() != nullptr)) {
    return repeat(interpreter, left, right.integer());
  }
  if (op == "*" && left.is_integer() && (right.text() != nullptr || right.list() != nullptr)) {
    return repeat(interpreter, right, left.integer());
  }
  if (op == "+" && left.text() != nullptr && right.text() != nullptr) {
    BATON_TRY(interpreter.charge_text(left.text()->size() + right.text()->size()));
    Text out = std::move(left).take_text();  // a long text that grows is not copied each time
    out.append(*right.text());
    return Value(std::move(out));
  }
  if (op == "+" && left.list() != nullptr && right.list() != nullptr &&
      left.list()->tuple == right.list()->tuple) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    BATON_TRY(interpreter.charge(items.size()));
    return make_list(std::move(items), left.list()->tuple);
  }
  return unsupported(op, left, right);
}

Result<bool> compare_operator(Interpreter& interpreter,
                              std::string_view op,
                              const Value& left,
                              const Value& right) {
  if (op == "==" || op == "!=") {
    return equal(left, right) == (op == "==");
  }
  if (op == "in" || op == "not in") {
    BATON_TRY(interpreter.charge(right.weight()));
    BATON_ASSIGN(const bool found, contains(right, left));
    return found == (op == "in");
  }
  if (const auto* undefined = right.as<Undefined>()) {
    return template_error(undefined->what);
  }
  BATON_ASSIGN(const int order, compare(left, right));
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Result<Value> format_percent(Interpreter& interpreter,
                             const Text& pattern,
                             const std::vector<Value>& values) {
  const std::string_view all = pattern.view();
  Text out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t sign = std::min(all.find('%', at), all.size());
    out.append(pattern.slice(at, sign));
    BATON_TRY(interpreter.charge_text(out.size()));
    if (sign == all.size()) {
      break;
    }
    std::size_t letter = sign + 1;
    while (letter < all.size() &&
           std::string_view("0123456789.+- ").find(all[letter]) != std::string_view::npos) {
      ++letter;
    }
    if (letter == all.size()) {
      return template_error("incomplete format");
    }
    if (all[letter] == '%') {
      out.append(pattern.slice(letter, letter + 1));
    } else if (std::string_view("sdrifxX").find(all[letter]) == std::string_view::npos) {
      return template_error(fmt::format("unsupported format character '{}'", all[letter]));
    } else if (next >= values.size()) {
      return template_error("not enough arguments for format string");
    } else {
      const std::string_view spec = all.substr(sign + 1, letter - sign - 1);
      BATON_ASSIGN(const Text made, format_one(spec, all[letter], values[next++]));
      out.append(made);
    }
    at = letter + 1;
  }
  if (next < values.size()) {
    return template_error("not all arguments converted during string formatting");
  }
  return Value(std::move(out));
}

}  // namespace baton::engine::jinja
