#include "gateway/openai/structured_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::gateway {
namespace {

using simdjson::SUCCESS;

// Of a schema's name, as the OpenAI API wants it.
constexpr std::size_t kMaxName = 64;

std::optional<ApiError> missing(const std::string& param) {
  return bad_request(
      "missing_required_parameter", param, fmt::format("Missing required parameter: '{}'.", param));
}

// One of several literal texts, as rules.
void append_literal(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

std::optional<ApiError> read_text(const JsonElement& value,
                                  const std::string& param,
                                  std::string& into) {
  std::string_view text;
  if (value.get(text) != SUCCESS) {
    return wrong_type(param, "a string", value);
  }
  if (text.empty()) {
    return out_of_range(param, "must not be empty");
  }
  into = text;
  return std::nullopt;
}

// A schema, as JSON or as its text.
std::optional<ApiError> read_schema(const JsonElement& value,
                                    const std::string& param,
                                    Grammar& into) {
  std::string_view text;
  into.kind = Grammar::Kind::JsonSchema;
  if (value.get(text) == SUCCESS) {
    into.text = text;
  } else if (value.is_object() || value.is_bool()) {
    into.text = simdjson::minify(value);
  } else {
    return wrong_type(param, "an object", value);
  }
  return std::nullopt;
}

// Appends texts that all begin with the same `start` bytes, sorted, each once, as a tree of their
// beginnings: so only as many places of the rules are looked at as there are ways to go on.
void append_choices(std::string& out, std::span<const std::string> texts, std::size_t start) {
  const char* separator = "";
  while (!texts.empty()) {
    const std::string& first = texts.front();
    out += std::exchange(separator, " | ");
    if (first.size() == start) {
      out += "\"\"";
      texts = texts.subspan(1);
      continue;
    }
    std::size_t count = 1;
    while (count < texts.size() && texts[count][start] == first[start]) {
      ++count;
    }
    const auto same = texts.first(count);
    // Sorted: what the first and the last share, all share. Characters are not cut.
    const auto [end, other] = std::ranges::mismatch(first, same.back());
    auto common = static_cast<std::size_t>(end - first.begin());
    while (common < first.size() && (static_cast<unsigned char>(first[common]) & 0xc0U) == 0x80) {
      --common;
    }
    if (count == 1 || common <= start) {
      append_literal(out, std::string_view(first).substr(start));
      texts = texts.subspan(1);
      continue;
    }
    append_literal(out, std::string_view(first).substr(start, common - start));
    out += " (";
    append_choices(out, same, common);
    out += ')';
    texts = texts.subspan(count);
  }
}

std::optional<ApiError> read_choice(const JsonElement& value,
                                    const std::string& param,
                                    Grammar& into) {
  simdjson::dom::array list;
  if (value.get(list) != SUCCESS) {
    return wrong_type(param, "an array of strings", value);
  }
  std::vector<std::string> texts;
  for (const JsonElement item : list) {
    std::string text;
    if (auto error = read_text(item, fmt::format("{}[{}]", param, texts.size()), text)) {
      return error;
    }
    texts.push_back(std::move(text));
  }
  if (texts.empty()) {
    return out_of_range(param, "must not be empty");
  }
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  into = {.kind = Grammar::Kind::Ebnf, .text = "root ::= "};
  append_choices(into.text, texts, 0);
  return std::nullopt;
}

// The value of one of vLLM's names for a kind.
std::optional<ApiError> read_kind(std::string_view kind,
                                  const JsonElement& value,
                                  const std::string& param,
                                  Grammar& into) {
  if (kind == "json") {
    return read_schema(value, param, into);
  }
  if (kind == "choice") {
    return read_choice(value, param, into);
  }
  if (kind == "json_object") {
    bool wanted = false;
    if (value.get(wanted) != SUCCESS) {
      return wrong_type(param, "a boolean", value);
    }
    into.kind = wanted ? Grammar::Kind::Json : Grammar::Kind::None;
    return std::nullopt;
  }
  into.kind = kind == "regex" ? Grammar::Kind::Regex : Grammar::Kind::Ebnf;
  return read_text(value, param, into.text);
}

// A schema with its name, at `param`.
std::optional<ApiError> read_json_schema(const JsonElement& described,
                                         const std::string& param,
                                         Grammar& into) {
  simdjson::dom::object object;
  if (described.get(object) != SUCCESS) {
    return wrong_type(param, "an object", described);
  }
  static constexpr auto kNames =
      std::to_array<std::string_view>({"description", "name", "schema", "strict", "type"});
  JsonFields fields(object, kNames, param + ".");
  std::string name;
  std::string description;
  bool is_strict = false;  // what is held to is held to either way
  fields.read("name", name);
  fields.read("description", description);
  fields.read("strict", is_strict);
  if (fields.error()) {
    return fields.error();
  }
  if (name.empty()) {
    return missing(param + ".name");
  }
  if (name.size() > kMaxName) {
    return out_of_range(param + ".name", fmt::format("must have at most {} characters", kMaxName));
  }
  const auto schema = fields.get("schema");
  if (!schema) {
    return missing(param + ".schema");
  }
  if (!schema->is_object()) {
    return wrong_type(param + ".schema", "an object", *schema);
  }
  return read_schema(*schema, param + ".schema", into);
}

// `is_flat`: the schema stands in the format itself.
std::optional<ApiError> read_format(const JsonElement& format,
                                    const std::string& param,
                                    bool is_flat,
                                    Grammar& into) {
  std::string_view type;
  if (!format.is_object()) {
    return wrong_type(param, "an object", format);
  }
  if (format["type"].get(type) != SUCCESS) {
    return missing(param + ".type");
  }
  if (type == "json_object") {
    into.kind = Grammar::Kind::Json;
    return std::nullopt;
  }
  if (type == "json_schema") {
    JsonElement described = format;
    if (!is_flat && format["json_schema"].get(described) != SUCCESS) {
      return missing(param + ".json_schema");
    }
    return read_json_schema(described, is_flat ? param : param + ".json_schema", into);
  }
  if (type != "text") {
    return out_of_range(param + ".type", "must be 'text', 'json_object' or 'json_schema'");
  }
  return std::nullopt;
}

// The object of vLLM that holds one kind by name.
std::optional<ApiError> read_structured_outputs(const JsonElement& value, Grammar& into) {
  const std::string param = "structured_outputs";
  simdjson::dom::object object;
  if (value.get(object) != SUCCESS) {
    return wrong_type(param, "an object", value);
  }
  static constexpr auto kNames =
      std::to_array<std::string_view>({"choice", "grammar", "json", "json_object", "regex"});
  // They say how, not what.
  static constexpr auto kIgnored = std::to_array<std::string_view>(
      {"disable_additional_properties", "disable_any_whitespace", "disable_fallback"});
  std::string_view found;
  for (const auto& [key, member] : object) {
    const std::string path = fmt::format("{}.{}", param, key);
    if (member.is_null() || std::ranges::find(kIgnored, key) != kIgnored.end()) {
      continue;
    }
    if (std::ranges::find(kNames, key) == kNames.end()) {
      return bad_request("unsupported_parameter",
                         path,
                         fmt::format("Unsupported parameter: '{}'. Use one of 'json', 'regex', "
                                     "'choice', 'grammar' and 'json_object'.",
                                     path));
    }
    if (!found.empty()) {
      return bad_request("invalid_value",
                         path,
                         fmt::format("'{}' cannot be combined with '{}.{}'.", path, param, found));
    }
    found = key;
    if (auto error = read_kind(key, member, path, into)) {
      return error;
    }
  }
  return found.empty() ? std::optional(out_of_range(
                             param,
                             "must have one of 'json', 'regex', 'choice', 'grammar' and "
                             "'json_object'"))
                       : std::nullopt;
}

constexpr auto kGrammarFields =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"response_format", ""},
                                                                  {"structured_outputs", ""},
                                                                  {"guided_json", "json"},
                                                                  {"guided_regex", "regex"},
                                                                  {"guided_choice", "choice"},
                                                                  {"guided_grammar", "grammar"}});

}  // namespace

StructuredOutput read_structured_output(JsonFields& fields) {
  StructuredOutput output;
  for (const auto& [name, kind] : kGrammarFields) {
    const auto value = fields.get(name);
    if (!value) {
      continue;
    }
    Grammar grammar;
    auto error = name == "response_format" ? read_format(*value, "response_format", false, grammar)
                 : name == "structured_outputs"
                     ? read_structured_outputs(*value, grammar)
                     : read_kind(kind, *value, std::string(name), grammar);
    if (error) {
      fields.fail(std::move(*error));
      return {};
    }
    if (grammar.kind == Grammar::Kind::None) {
      continue;
    }
    if (output.grammar.kind != Grammar::Kind::None) {
      fields.fail(
          bad_request("invalid_value",
                      std::string(name),
                      fmt::format("'{}' cannot be combined with '{}'.", name, output.param)));
      return {};
    }
    output = {.grammar = std::move(grammar), .param = std::string(name)};
  }
  return output;
}

StructuredOutput read_text_format(const JsonElement& format, JsonFields& fields) {
  StructuredOutput output;
  if (auto error = read_format(format, "text.format", true, output.grammar)) {
    fields.fail(std::move(*error));
    return {};
  }
  if (output.grammar.kind != Grammar::Kind::None) {
    output.param = "text.format";
  }
  return output;
}

}  // namespace baton::gateway
