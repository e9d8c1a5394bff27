// Methods of strings. Those of lists and dicts: methods.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "engine/chat_template/method_table.h"
#include "engine/chat_template/python_text.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine::jinja {
namespace {

// str.split with no separator: words between white space, the rest whole after `limit` cuts.
Result<Value> split_words(const Text& text, std::int64_t limit) {
  const auto run_end = [&](std::size_t at, bool spaces) {
    while (at < text.size()) {
      const Utf8Char c = decode_utf8(text.view(), at);
      if (is_python_space(c.code) != spaces) {
        break;
      }
      at += c.size;
    }
    return at;
  };
  std::vector<Value> parts;
  std::size_t at = run_end(0, true);
  while (at < text.size()) {
    const bool rest = limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit;
    const std::size_t end = rest ? text.size() : run_end(at, false);
    parts.emplace_back(text.slice(at, end));
    at = run_end(end, true);
  }
  return make_list(std::move(parts));
}

Result<Value> split(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const std::int64_t limit, integer_argument(arguments, 1, "maxsplit", -1));
  BATON_TRY(interpreter.charge_text(text.size()));
  const Value* separator = arguments.find(0, "sep");
  if (separator == nullptr || separator->is_none()) {
    return split_words(text, limit);
  }
  BATON_ASSIGN(const Text by, text_argument(arguments, 0, "sep", "split"));
  if (by.empty()) {
    return template_error("split() needs a separator that is not empty");
  }
  std::vector<Value> parts;
  std::size_t at = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t found = text.view().find(by.view(), at);
    if (found == std::string_view::npos) {
      break;
    }
    parts.emplace_back(text.slice(at, found));
    at = found + by.size();
  }
  parts.emplace_back(text.slice(at, text.size()));
  BATON_TRY(interpreter.charge(parts.size()));
  return make_list(std::move(parts));
}

Result<Value> rsplit(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const Text by, text_argument(arguments, 0, "sep", "rsplit"));
  BATON_ASSIGN(const std::int64_t limit, integer_argument(arguments, 1, "maxsplit", -1));
  if (by.empty()) {
    return template_error("rsplit() needs a separator that is not empty");
  }
  BATON_TRY(interpreter.charge_text(text.size()));
  std::vector<Value> parts;
  std::size_t end = text.size();
  while ((limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) && end >= by.size()) {
    const std::size_t found = text.view().rfind(by.view(), end - by.size());
    if (found == std::string_view::npos) {
      break;
    }
    parts.emplace_back(text.slice(found + by.size(), end));
    end = found;
  }
  parts.emplace_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  BATON_TRY(interpreter.charge(parts.size()));
  return make_list(std::move(parts));
}

Result<Value> splitlines(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  const bool keep = flag_argument(arguments, 0, "keepends", false);
  BATON_TRY(interpreter.charge_text(text.size()));
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.view(), at);
    std::size_t next = at + c.size;
    const bool ends = (c.code >= 0x0A && c.code <= 0x0D) || (c.code >= 0x1C && c.code <= 0x1E) ||
                      c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
    if (ends) {
      if (c.code == '\r' && next < text.size() && text.view()[next] == '\n') {
        ++next;
      }
      parts.emplace_back(text.slice(begin, keep ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) {
    parts.emplace_back(text.slice(begin, text.size()));
  }
  BATON_TRY(interpreter.charge(parts.size()));
  return make_list(std::move(parts));
}

template <bool left, bool right>
Result<Value> strip_method(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_TRY(interpreter.charge_text(text.size()));
  const Value* chars = arguments.find(0, "chars");
  if (chars == nullptr || chars->is_none()) {
    return Value(strip(text, {}, left, right));
  }
  BATON_ASSIGN(const Text wanted, text_argument(arguments, 0, "chars", "strip"));
  BATON_TRY(interpreter.charge(1 + wanted.size() * text.size() / kWeightBytes));
  return Value(wanted.empty() ? text : strip(text, wanted.view(), left, right));
}

template <bool start>
Result<Value> starts_or_ends(Interpreter& interpreter,
                             const Text& text,
                             const Arguments& arguments) {
  const auto fits = [&](const Text& part) {
    return start ? text.view().starts_with(part.view()) : text.view().ends_with(part.view());
  };
  if (!arguments.positional.empty()) {
    if (const List* list = arguments.positional[0].list()) {
      BATON_TRY(interpreter.charge(list->weight));
      return Value(std::any_of(list->items.begin(), list->items.end(), [&](const Value& each) {
        return each.text() != nullptr && fits(*each.text());
      }));
    }
  }
  BATON_ASSIGN(const Text part, text_argument(arguments, 0, "", start ? "startswith" : "endswith"));
  return Value(fits(part));
}

template <bool start>
Result<Value> remove_affix(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const Text part,
               text_argument(arguments, 0, "", start ? "removeprefix" : "removesuffix"));
  BATON_TRY(interpreter.charge_text(text.size()));
  if (start && text.view().starts_with(part.view())) {
    return Value(text.slice(part.size(), text.size()));
  }
  if (!start && text.view().ends_with(part.view())) {
    return Value(text.slice(0, text.size() - part.size()));
  }
  return Value(text);
}

template <bool last>
Result<Value> find(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const Text part, text_argument(arguments, 0, "sub", "find"));
  BATON_TRY(interpreter.charge_text(text.size()));
  const std::size_t found = last ? text.view().rfind(part.view()) : text.view().find(part.view());
  return Value(found == std::string_view::npos
                   ? std::int64_t{-1}
                   : static_cast<std::int64_t>(count_chars(text.view().substr(0, found))));
}

Result<Value> count(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const Text part, text_argument(arguments, 0, "sub", "count"));
  BATON_TRY(interpreter.charge_text(text.size()));
  if (part.empty()) {
    return Value(static_cast<std::int64_t>(count_chars(text.view()) + 1));
  }
  std::int64_t found = 0;
  for (std::size_t at = text.view().find(part.view()); at != std::string_view::npos;
       at = text.view().find(part.view(), at + part.size())) {
    ++found;
  }
  return Value(found);
}

Result<Value> replace(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  BATON_ASSIGN(const Text from, text_argument(arguments, 0, "old", "replace"));
  BATON_ASSIGN(const Text to, text_argument(arguments, 1, "new", "replace"));
  BATON_ASSIGN(const std::int64_t times, integer_argument(arguments, 2, "count", -1));
  return replace_text(interpreter, text, from, to, times);
}

Result<Value> join(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return template_error("join() needs a list");
  }
  BATON_ASSIGN(const std::shared_ptr<List> items, iterate(arguments.positional[0]));
  return join_texts(interpreter, items->items, text, true);
}

// "{}", "{0}" and "{name}"; format specifications are not supported.
Result<Value> format(Interpreter& interpreter, const Text& text, const Arguments& arguments) {
  const std::string_view all = text.view();
  Text out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t sign = std::min(all.find_first_of("{}", at), all.size());
    out.append(text.slice(at, sign));
    BATON_TRY(interpreter.charge_text(out.size()));
    if (sign == all.size()) {
      break;
    }
    if (sign + 1 < all.size() && all[sign + 1] == all[sign]) {
      out.append(text.slice(sign, sign + 1));
      at = sign + 2;
      continue;
    }
    const std::size_t end = all.find('}', sign);
    if (all[sign] == '}' || end == std::string_view::npos) {
      return template_error("format() has a single brace");
    }
    const std::string_view name = all.substr(sign + 1, end - sign - 1);
    const bool number = name.size() < 4 && name.find_first_not_of("0123456789") == name.npos;
    const std::size_t place = name.empty() ? next++
                              : number     ? std::stoul(std::string(name))
                                           : static_cast<std::size_t>(-1);
    const Value* value = arguments.find(place, name);
    if (value == nullptr) {
      return template_error(fmt::format("format() has no value for '{{{}}}'", name));
    }
    out.append(value->str());
    at = end + 1;
  }
  return Value(std::move(out));
}

template <Text (*map)(const Text&)>
Result<Value> mapped(Interpreter& interpreter, const Text& text, const Arguments&) {
  BATON_TRY(interpreter.charge_text(text.size()));
  return Value(map(text));
}

Text title_method(const Text& text) {
  return title(text, false);
}

template <bool digits, bool letters>
Result<Value> all_are(Interpreter& interpreter, const Text& text, const Arguments&) {
  BATON_TRY(interpreter.charge_text(text.size()));
  const bool all = std::all_of(text.view().begin(), text.view().end(), [](char c) {
    const bool letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
    return (digits && c >= '0' && c <= '9') || (letters && letter);
  });
  return Value(all && !text.empty());
}

template <bool upper>
Result<Value> is_case(Interpreter& interpreter, const Text& text, const Arguments&) {
  BATON_TRY(interpreter.charge_text(text.size()));
  const Text raised = to_upper(text);
  const Text lowered = to_lower(text);
  return Value((upper ? raised : lowered).view() == text.view() && raised.view() != lowered.view());
}

Result<Value> is_all_space(Interpreter& interpreter, const Text& text, const Arguments&) {
  BATON_TRY(interpreter.charge_text(text.size()));
  return Value(!text.empty() && strip(text, {}, true, false).empty());
}

constexpr Named<TextMethod> kTextMethods[] = {
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"startswith", starts_or_ends<true>},
    {"endswith", starts_or_ends<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"find", find<false>},
    {"rfind", find<true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"upper", mapped<to_upper>},
    {"lower", mapped<to_lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_method>},
    {"isdigit", all_are<true, false>},
    {"isalpha", all_are<false, true>},
    {"isalnum", all_are<true, true>},
    {"isspace", is_all_space},
    {"isupper", is_case<true>},
    {"islower", is_case<false>},
};

}  // namespace

TextMethod find_text_method(std::string_view name) {
  return find_in(kTextMethods, name);
}

}  // namespace baton::engine::jinja
