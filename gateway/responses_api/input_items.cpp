#include "gateway/responses_api/input_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/json/json_escape.h"
#include "gateway/tools/tool_fields.h"
#include "gateway/tools/tool_messages.h"

namespace baton::gateway {
namespace {

constexpr auto kMessageItemFields =
    std::to_array<std::string_view>({"content", "id", "phase", "role", "status", "type"});
constexpr auto kCallItemFields =
    std::to_array<std::string_view>({"arguments", "call_id", "id", "name", "status", "type"});
constexpr auto kResultFields =
    std::to_array<std::string_view>({"call_id", "id", "output", "status", "type"});
constexpr auto kItemRoles =
    std::to_array<std::string_view>({"assistant", "developer", "system", "user"});

// Text parts are joined; anything that is no text is refused, never dropped in silence.
ApiResult<std::string> read_content(const std::string& path, const JsonElement& value) {
  std::string_view text;
  simdjson::dom::array parts;
  if (value.get(text) == simdjson::SUCCESS) {
    return std::string(text);
  }
  if (value.get(parts) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path, "a string or an array of parts", value));
  }
  std::string out;
  std::size_t index = 0;
  for (const JsonElement part : parts) {
    const std::string name = fmt::format("{}[{}]", path, index++);
    simdjson::dom::object object;
    std::string_view type;
    if (part.get(object) != simdjson::SUCCESS) {
      return std::unexpected(wrong_type(name, "an object", part));
    }
    if (object["type"].get(type) != simdjson::SUCCESS) {
      return std::unexpected(missing_field(name + ".type"));
    }
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal") {
      return std::unexpected(bad_request(
          "unsupported_value",
          name + ".type",
          fmt::format("The model takes text only; a part of type '{}' is not supported.", type)));
    }
    const std::string_view key = type == "refusal" ? "refusal" : "text";
    if (object[key].get(text) != simdjson::SUCCESS) {
      return std::unexpected(bad_request("invalid_type",
                                         fmt::format("{}.{}", name, key),
                                         fmt::format("'{}.{}' must be a string.", name, key)));
    }
    out += text;
  }
  return out;
}

// A string that must be there.
ApiResult<std::string> read_needed(JsonFields& fields,
                                   const std::string& path,
                                   std::string_view name) {
  if (!fields.has(name)) {
    return std::unexpected(missing_field(fmt::format("{}.{}", path, name)));
  }
  std::string text;
  fields.read(name, text);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return text;
}

ApiResult<std::string> needed_content(JsonFields& fields,
                                      const std::string& path,
                                      std::string_view name) {
  const std::string at = fmt::format("{}.{}", path, name);
  const auto content = fields.get(name);
  if (!content) {
    return std::unexpected(missing_field(at));
  }
  return read_content(at, *content);
}

ApiResult<engine::ChatMessage> read_message_item(simdjson::dom::object object,
                                                 const std::string& path) {
  JsonFields fields(object, kMessageItemFields, path + ".");
  auto role = read_needed(fields, path, "role");
  if (!role) {
    return std::unexpected(std::move(role).error());
  }
  if (std::ranges::find(kItemRoles, *role) == kItemRoles.end()) {
    return std::unexpected(out_of_range(
        path + ".role",
        fmt::format("must be one of {}, got '{}'", fmt::join(kItemRoles, ", "), *role)));
  }
  auto content = needed_content(fields, path, "content");
  if (!content) {
    return std::unexpected(std::move(content).error());
  }
  engine::ChatMessage message;
  // "developer" is the newer name of the same role; templates know the older one.
  message.role = *role == "developer" ? "system" : *role;
  message.content = std::move(*content);
  return message;
}

// The call as it stands in `tool_calls` of a message.
ApiResult<std::string> read_call_item(simdjson::dom::object object, const std::string& path) {
  JsonFields fields(object, kCallItemFields, path + ".");
  auto id = read_needed(fields, path, "call_id");
  if (!id) {
    return id;
  }
  auto name = read_needed(fields, path, "name");
  if (!name) {
    return name;
  }
  auto arguments = read_needed(fields, path, "arguments");
  if (!arguments) {
    return arguments;
  }
  return tool_call_json(*id, *name, *arguments, path + ".arguments");
}

ApiResult<engine::ChatMessage> read_result(simdjson::dom::object object, const std::string& path) {
  JsonFields fields(object, kResultFields, path + ".");
  auto id = read_needed(fields, path, "call_id");
  if (!id) {
    return std::unexpected(std::move(id).error());
  }
  auto output = needed_content(fields, path, "output");
  if (!output) {
    return std::unexpected(std::move(output).error());
  }
  engine::ChatMessage message;
  message.role = "tool";
  message.content = std::move(*output);
  message.extra_json = "{\"tool_call_id\":";
  append_json_string(message.extra_json, *id);
  message.extra_json += '}';
  return message;
}

// Calls follow each other, and the text before them, in one message.
class Turns {
 public:
  void add(engine::ChatMessage message) {
    end_calls();
    messages_.push_back(std::move(message));
  }
  void add_call(const std::string& json) {
    calls_ += calls_.empty() ? "" : ",";
    calls_ += json;
  }
  std::vector<engine::ChatMessage> take() {
    end_calls();
    return std::move(messages_);
  }

 private:
  void end_calls() {
    if (calls_.empty()) {
      return;
    }
    if (messages_.empty() || messages_.back().role != "assistant") {
      messages_.push_back({"assistant", "", "", ""});
    }
    messages_.back().extra_json = tool_calls_json(std::exchange(calls_, {}));
  }

  std::vector<engine::ChatMessage> messages_;
  std::string calls_;  // not in a message yet, comma between
};

ApiResult<void> read_item(const JsonElement& value, const std::string& path, Turns& turns) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path, "an object", value));
  }
  std::string_view type = "message";
  JsonElement given;
  if (object["type"].get(given) == simdjson::SUCCESS && !given.is_null() &&
      given.get(type) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path + ".type", "a string", given));
  }
  if (type == "function_call") {
    auto call = read_call_item(object, path);
    if (!call) {
      return std::unexpected(std::move(call).error());
    }
    turns.add_call(*call);
    return {};
  }
  if (type == "reasoning") {
    return {};
  }
  if (type != "message" && type != "function_call_output") {
    return std::unexpected(bad_request(
        "unsupported_value",
        path + ".type",
        fmt::format("An item of type '{}' is not supported; this server takes messages, calls of "
                    "functions and their outputs.",
                    type)));
  }
  auto message = type == "message" ? read_message_item(object, path) : read_result(object, path);
  if (!message) {
    return std::unexpected(std::move(message).error());
  }
  turns.add(std::move(*message));
  return {};
}

}  // namespace

std::vector<engine::ChatMessage> read_input_items(JsonFields& fields) {
  const auto input = fields.get("input");
  std::string_view text;
  simdjson::dom::array items;
  if (!input) {
    fields.fail(missing_field("input"));
    return {};
  }
  if (input->get(text) == simdjson::SUCCESS) {
    return {{"user", std::string(text), "", ""}};
  }
  if (input->get(items) != simdjson::SUCCESS) {
    fields.fail(wrong_type("input", "a string or an array of items", *input));
    return {};
  }
  if (items.size() == 0) {
    fields.fail(out_of_range("input", "must hold at least one item"));
    return {};
  }
  Turns turns;
  std::size_t index = 0;
  for (const JsonElement item : items) {
    if (auto read = read_item(item, fmt::format("input[{}]", index++), turns); !read) {
      fields.fail(std::move(read).error());
      return {};
    }
  }
  return turns.take();
}

}  // namespace baton::gateway
