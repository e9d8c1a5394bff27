#include "engine/chat_template/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>

#include "engine/chat_template/python_text.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine::jinja {
namespace {

using Element = simdjson::dom::element;
using Type = simdjson::dom::element_type;

Result<Value> convert(const Element& element, int level) {
  if (level > kMaxNesting) {
    return template_error(fmt::format("JSON nests more than {} levels deep", kMaxNesting));
  }
  switch (element.type()) {
    case Type::ARRAY: {
      std::vector<Value> items;
      for (const Element item : simdjson::dom::array(element)) {
        BATON_ASSIGN(Value value, convert(item, level + 1));
        items.push_back(std::move(value));
      }
      return make_list(std::move(items));
    }
    case Type::OBJECT: {
      auto dict = std::make_shared<Dict>();
      for (const auto field : simdjson::dom::object(element)) {
        BATON_ASSIGN(Value value, convert(field.value, level + 1));
        BATON_TRY(dict->set(Value(Text(std::string(field.key), true)), std::move(value)));
      }
      return Value(std::move(dict));
    }
    case Type::STRING:
      return Value(Text(std::string(std::string_view(element)), true));
    case Type::INT64:
      return Value(std::int64_t(element));
    case Type::UINT64:
      return Value(static_cast<double>(std::uint64_t(element)));
    case Type::DOUBLE:
      return Value(double(element));
    case Type::BOOL:
      return Value(bool(element));
    case Type::NULL_VALUE:
      return Value(None{});
  }
  return Value(None{});
}

void append_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.size;
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    constexpr std::string_view kTo = "\"\\nrtfb";
    const std::size_t known =
        c.code < 0x80 ? kFrom.find(static_cast<char>(c.code)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kTo[known]);
    } else if (c.code < 0x20 || (ensure_ascii && c.code > 0x7E && c.code < 0x10000)) {
      // json.dumps leaves U+007F as it is.
      if (c.code == 0x7F) {
        out.push_back('\x7F');
      } else {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(c.code));
      }
    } else if (ensure_ascii && c.code >= 0x10000) {
      const unsigned rest = static_cast<unsigned>(c.code) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      append_utf8(out, c.code);
    }
  }
  out.push_back('"');
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  Status write(const Value& value, int level) {
    if (value.is_none()) {
      out_ += "null";
    } else if (const auto* flag = value.as<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const auto* integer = value.as<std::int64_t>()) {
      out_ += std::to_string(*integer);
    } else if (const auto* real = value.as<double>()) {
      out_ += std::isfinite(*real) ? float_repr(*real)
              : std::isnan(*real)  ? "NaN"
              : *real > 0          ? "Infinity"
                                   : "-Infinity";
    } else if (const Text* text = value.text()) {
      foreign_ = foreign_ || text->any_foreign();
      append_string(out_, text->view(), style_.ensure_ascii);
    } else if (const List* list = value.list()) {
      return write_list(*list, level);
    } else if (const Dict* dict = value.dict(); dict != nullptr && !dict->is_namespace) {
      return write_dict(*dict, level);
    } else {
      return template_error(
          fmt::format("an object of type {} cannot become JSON", value.type_name()));
    }
    return {};
  }

  Text take() { return Text(std::move(out_), foreign_); }

 private:
  void new_line(int level) {
    if (style_.indent >= 0) {
      out_.push_back('\n');
      out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(level), ' ');
    }
  }

  Status write_list(const List& list, int level) {
    out_.push_back('[');
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      out_ += i > 0 ? style_.item_separator : "";
      new_line(level + 1);
      BATON_TRY(write(list.items[i], level + 1));
    }
    if (!list.items.empty()) {
      new_line(level);
    }
    out_.push_back(']');
    return {};
  }

  Status write_key(const Value& key) {
    if (key.text() != nullptr) {
      return write(key, 0);
    }
    if (!key.is_number() && !key.is_none()) {
      return template_error(fmt::format("a key of type {} cannot become JSON", key.type_name()));
    }
    out_.push_back('"');
    BATON_TRY(write(key, 0));
    out_.push_back('"');
    return {};
  }

  Status write_dict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries().size());
    for (const auto& entry : dict.entries()) {
      entries.push_back(&entry);
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return compare(a->first, b->first).value_or(0) < 0;
      });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto* entry : entries) {
      out_ += first ? "" : style_.item_separator;
      first = false;
      new_line(level + 1);
      BATON_TRY(write_key(entry->first));
      out_ += style_.key_separator;
      BATON_TRY(write(entry->second, level + 1));
    }
    if (!entries.empty()) {
      new_line(level);
    }
    out_.push_back('}');
    return {};
  }

  const JsonStyle& style_;
  std::string out_;
  bool foreign_ = false;
};

}  // namespace

Result<Value> parse_json(std::string_view text, std::string_view what) {
  simdjson::dom::parser parser;
  Element root;
  if (const auto code = parser.parse(text.data(), text.size()).get(root)) {
    return template_error(
        fmt::format("{} is not valid JSON: {}", what, simdjson::error_message(code)));
  }
  auto value = convert(root, 0);
  if (!value) {
    return template_error(fmt::format("{}: {}", what, value.error().message));
  }
  return value;
}

Result<Text> to_json(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  BATON_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace baton::engine::jinja
