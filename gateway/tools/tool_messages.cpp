#include "gateway/tools/tool_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "common/json/json_escape.h"
#include "gateway/tools/tool_fields.h"

namespace baton::gateway {
namespace {

// Below the limit of a body, as they stand deeper in what the template gets.
constexpr std::size_t kMaxArgumentDepth = 48;

constexpr auto kCallFields = std::to_array<std::string_view>({"function", "id", "type"});
constexpr auto kCallee = std::to_array<std::string_view>({"arguments", "name"});

// Arguments of an earlier call: a JSON object in a string; "" stands for no arguments.
ApiResult<std::string> arguments_object(const std::string& text, const std::string& path) {
  if (text.empty()) {
    return std::string("{}");
  }
  simdjson::dom::parser parser;
  JsonElement root;
  if (parser.allocate(std::max<std::size_t>(text.size(), 64), kMaxArgumentDepth) !=
          simdjson::SUCCESS ||
      parser.parse(text).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return std::unexpected(
        bad_request("invalid_value", path, fmt::format("'{}' must be a JSON object.", path)));
  }
  return simdjson::minify(root);
}

ApiResult<std::string> read_call(const JsonElement& value, const std::string& path) {
  const auto object = object_at(value, path);
  if (!object) {
    return std::unexpected(object.error());
  }
  JsonFields fields(*object, kCallFields, path + ".");
  std::string id;
  fields.read("id", id);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  if (fields.has("type")) {
    if (auto checked = check_function_type(fields, path); !checked) {
      return std::unexpected(std::move(checked).error());
    }
  }
  const std::string at = path + ".function";
  const auto function = object_at(fields.get("function"), at);
  if (!function) {
    return std::unexpected(function.error());
  }
  JsonFields callee(*function, kCallee, at + ".");
  if (!callee.has("name")) {
    return std::unexpected(missing_field(at + ".name"));
  }
  std::string name;
  std::string arguments;
  callee.read("name", name);
  callee.read("arguments", arguments);
  if (callee.error()) {
    return std::unexpected(*callee.error());
  }
  return tool_call_json(id, name, arguments, at + ".arguments");
}

}  // namespace

ApiResult<std::string> tool_call_json(std::string_view id,
                                      std::string_view name,
                                      const std::string& arguments,
                                      const std::string& path) {
  auto parsed = arguments_object(arguments, path);
  if (!parsed) {
    return parsed;
  }
  std::string out = "{\"id\":";
  append_json_string(out, id);
  out += ",\"type\":\"function\",\"function\":{\"name\":";
  append_json_string(out, name);
  out += ",\"arguments\":" + *parsed + "}}";
  return out;
}

std::string tool_calls_json(std::string_view calls) {
  return fmt::format("{{\"tool_calls\":[{}]}}", calls);
}

ApiResult<void> read_tool_fields(const JsonFields& message,
                                 const std::string& path,
                                 std::string_view role,
                                 std::string& extra_json) {
  const auto append = [&](std::string_view name, std::string_view json) {
    extra_json += extra_json.empty() ? '{' : ',';
    append_json_string(extra_json, name);
    extra_json += ':';
    extra_json += json;
  };
  if (role == "tool") {
    const auto id = message.get("tool_call_id");
    std::string_view text;
    if (!id) {
      return std::unexpected(missing_field(path + ".tool_call_id"));
    }
    if (id->get(text) != simdjson::SUCCESS) {
      return std::unexpected(wrong_type(path + ".tool_call_id", "a string", *id));
    }
    std::string quoted;
    append_json_string(quoted, text);
    append("tool_call_id", quoted);
  }
  const auto calls = message.get("tool_calls");
  if (role != "assistant" || !calls) {
    return {};
  }
  simdjson::dom::array array;
  if (calls->get(array) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path + ".tool_calls", "an array", *calls));
  }
  std::string list;
  std::size_t index = 0;
  for (const JsonElement item : array) {
    auto call = read_call(item, fmt::format("{}.tool_calls[{}]", path, index++));
    if (!call) {
      return std::unexpected(std::move(call).error());
    }
    list += list.empty() ? '[' : ',';
    list += *call;
  }
  if (!list.empty()) {
    append("tool_calls", list + ']');
  }
  return {};
}

void name_tool_results(std::vector<engine::ChatMessage>& messages) {
  std::map<std::string, std::string, std::less<>> names;  // by id
  simdjson::dom::parser parser;
  for (engine::ChatMessage& message : messages) {
    JsonElement extra;
    simdjson::dom::array calls;
    std::string_view id;
    std::string_view name;
    const bool has_part = message.role == "assistant" || message.role == "tool";
    if (!has_part || message.extra_json.empty() ||
        parser.parse(message.extra_json).get(extra) != simdjson::SUCCESS) {
      continue;
    }
    if (extra["tool_calls"].get(calls) == simdjson::SUCCESS) {
      for (const JsonElement call : calls) {
        if (call["id"].get(id) == simdjson::SUCCESS &&
            call["function"]["name"].get(name) == simdjson::SUCCESS) {
          names[std::string(id)] = name;
        }
      }
    }
    if (message.name.empty() && extra["tool_call_id"].get(id) == simdjson::SUCCESS) {
      const auto found = names.find(id);
      message.name = found == names.end() ? "" : found->second;
    }
  }
}

}  // namespace baton::gateway
