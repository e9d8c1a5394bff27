#include "gateway/openai/openai_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/base/digits.h"
#include "common/json/json_escape.h"
#include "gateway/tools/tool_messages.h"

namespace baton::gateway {
namespace {

constexpr auto kRoles = std::to_array<std::string_view>(
    {"assistant", "developer", "function", "system", "tool", "user"});

constexpr auto kMessageFields = std::to_array<std::string_view>({"content",
                                                                 "function_call",
                                                                 "name",
                                                                 "reasoning_content",
                                                                 "refusal",
                                                                 "role",
                                                                 "tool_call_id",
                                                                 "tool_calls"});

// Fields that templates read beside role, content, name, calls of tools and their results.
constexpr auto kExtras = std::to_array<std::string_view>({"function_call", "reasoning_content"});

// Text parts are joined; anything that is no text is refused, never dropped in silence.
ApiResult<void> read_parts(const std::string& path,
                           simdjson::dom::array parts,
                           std::string& content) {
  std::size_t index = 0;
  for (const JsonElement part : parts) {
    const std::string name = fmt::format("{}[{}]", path, index++);
    simdjson::dom::object object;
    std::string_view type;
    std::string_view text;
    if (part.get(object) != simdjson::SUCCESS) {
      return std::unexpected(wrong_type(name, "an object", part));
    }
    if (object["type"].get(type) != simdjson::SUCCESS) {
      return std::unexpected(
          bad_request("missing_required_parameter",
                      name + ".type",
                      fmt::format("Missing required parameter: '{}.type'.", name)));
    }
    const std::string_view key = type == "refusal" ? "refusal" : "text";
    if (type != "text" && type != "refusal") {
      return std::unexpected(bad_request(
          "unsupported_value",
          name + ".type",
          fmt::format("The model takes text only; a part of type '{}' is not supported.", type)));
    }
    if (object[key].get(text) != simdjson::SUCCESS) {
      return std::unexpected(bad_request("invalid_type",
                                         fmt::format("{}.{}", name, key),
                                         fmt::format("'{}.{}' must be a string.", name, key)));
    }
    content += text;
  }
  return {};
}

ApiResult<engine::ChatMessage> read_message(const std::string& path, const JsonElement& value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path, "an object", value));
  }
  JsonFields fields(object, kMessageFields, path + ".");
  engine::ChatMessage message;
  if (!fields.has("role")) {
    return std::unexpected(
        bad_request("missing_required_parameter",
                    path + ".role",
                    fmt::format("Missing required parameter: '{}.role'.", path)));
  }
  fields.read("role", message.role);
  fields.read("name", message.name);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  if (!std::binary_search(kRoles.begin(), kRoles.end(), message.role)) {
    return std::unexpected(out_of_range(
        path + ".role",
        fmt::format("must be one of {}, got '{}'", fmt::join(kRoles, ", "), message.role)));
  }
  if (message.role == "developer") {
    message.role = "system";  // the newer name of the same role; templates know the older one
  }
  if (const auto content = fields.get("content")) {
    std::string_view text;
    simdjson::dom::array parts;
    if (content->get(text) == simdjson::SUCCESS) {
      message.content = text;
    } else if (content->get(parts) == simdjson::SUCCESS) {
      if (auto read = read_parts(path + ".content", parts, message.content); !read) {
        return std::unexpected(std::move(read).error());
      }
    } else {
      return std::unexpected(
          wrong_type(path + ".content", "a string or an array of parts", *content));
    }
  } else if (message.role != "assistant") {
    return std::unexpected(
        bad_request("missing_required_parameter",
                    path + ".content",
                    fmt::format("Missing required parameter: '{}.content'.", path)));
  }
  if (auto read = read_tool_fields(fields, path, message.role, message.extra_json); !read) {
    return std::unexpected(std::move(read).error());
  }
  for (const std::string_view name : kExtras) {
    if (const auto extra = fields.get(name)) {
      message.extra_json += message.extra_json.empty() ? '{' : ',';
      append_json_string(message.extra_json, name);
      message.extra_json += ':';
      message.extra_json += std::string(simdjson::minify(*extra));
    }
  }
  if (!message.extra_json.empty()) {
    message.extra_json += '}';
  }
  return message;
}

}  // namespace

ApiResult<void> read_messages(const JsonElement& value, std::vector<engine::ChatMessage>& into) {
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type("messages", "an array", value));
  }
  if (array.size() == 0) {
    return std::unexpected(out_of_range("messages", "must hold at least one message"));
  }
  for (const JsonElement item : array) {
    std::string path = "messages[";
    append_number(path, into.size());
    path += ']';
    auto message = read_message(path, item);
    if (!message) {
      return std::unexpected(std::move(message).error());
    }
    into.push_back(std::move(*message));
  }
  name_tool_results(into);
  return {};
}

}  // namespace baton::gateway
