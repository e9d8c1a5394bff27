#include "gateway/responses_api/parse_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gateway/json_fields.h"
#include "gateway/openai_client.h"
#include "gateway/openai_sampling.h"

namespace baton::gateway {
namespace {

// Every field we know, sorted.
constexpr auto kFields = std::to_array<std::string_view>({
    "background",
    "conversation",
    "frequency_penalty",
    "include",
    "input",
    "instructions",
    "logit_bias",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "min_p",
    "model",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "priority",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "repetition_penalty",
    "request_id",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
});
static_assert(std::is_sorted(kFields.begin(), kFields.end()));

constexpr auto kItemFields =
    std::to_array<std::string_view>({"content", "id", "phase", "role", "status", "type"});
constexpr auto kRoles =
    std::to_array<std::string_view>({"assistant", "developer", "system", "user"});

ApiError missing(const std::string& path) {
  return bad_request(
      "missing_required_parameter", path, fmt::format("Missing required parameter: '{}'.", path));
}

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
      return std::unexpected(missing(name + ".type"));
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

ApiResult<engine::ChatMessage> read_item(const std::string& path, const JsonElement& value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return std::unexpected(wrong_type(path, "an object", value));
  }
  JsonFields fields(object, kItemFields, path + ".");
  std::string type = "message";
  engine::ChatMessage message;
  fields.read("type", type);
  fields.read("role", message.role);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  if (type != "message") {
    return std::unexpected(bad_request(
        "unsupported_value",
        path + ".type",
        fmt::format("An item of type '{}' is not supported; this server takes messages.", type)));
  }
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    return std::unexpected(message.role.empty()
                               ? missing(path + ".role")
                               : out_of_range(path + ".role",
                                              fmt::format("must be one of {}, got '{}'",
                                                          fmt::join(kRoles, ", "),
                                                          message.role)));
  }
  if (message.role == "developer") {
    message.role = "system";  // the newer name of the same role; templates know the older one
  }
  const auto content = fields.get("content");
  if (!content) {
    return std::unexpected(missing(path + ".content"));
  }
  auto text = read_content(path + ".content", *content);
  if (!text) {
    return std::unexpected(std::move(text).error());
  }
  message.content = std::move(*text);
  return message;
}

void read_input(JsonFields& fields, ApiRequest& request) {
  const auto input = fields.get("input");
  std::string_view text;
  simdjson::dom::array items;
  if (!input) {
    return fields.fail(missing("input"));
  }
  if (input->get(text) == simdjson::SUCCESS) {
    request.messages.push_back({"user", std::string(text), "", ""});
    return;
  }
  if (input->get(items) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("input", "a string or an array of items", *input));
  }
  if (items.size() == 0) {
    return fields.fail(out_of_range("input", "must hold at least one item"));
  }
  for (const JsonElement item : items) {
    auto message = read_item(fmt::format("input[{}]", request.messages.size()), item);
    if (!message) {
      return fields.fail(std::move(message).error());
    }
    request.messages.push_back(std::move(*message));
  }
}

void read_text(JsonFields& fields) {
  const auto text = fields.get("text");
  if (!text) {
    return;
  }
  simdjson::dom::object object;
  if (text->get(object) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("text", "an object", *text));
  }
  static constexpr auto kText = std::to_array<std::string_view>({"format", "verbosity"});
  JsonFields inner(object, kText, "text.");
  if (const auto format = inner.get("format")) {
    simdjson::dom::object shape;
    std::string_view type;
    if (format->get(shape) != simdjson::SUCCESS) {
      inner.fail(wrong_type("text.format", "an object", *format));
    } else if (shape["type"].get(type) != simdjson::SUCCESS) {
      inner.fail(missing("text.format.type"));
    } else if (type != "text") {
      inner.fail(unsupported("text.format", "Use /v1/chat/completions with 'response_format'."));
    }
  }
  std::string verbosity;
  inner.read("verbosity", verbosity);
  if (!verbosity.empty() && verbosity != "medium") {
    inner.fail(unsupported("text.verbosity", "The models served here have no such setting."));
  }
  if (inner.error()) {
    fields.fail(*inner.error());
  }
}

void read_include(JsonFields& fields, ApiRequest& request) {
  std::int64_t top = 0;
  fields.read("top_logprobs", 0, 20, top);
  bool wanted = top > 0;
  if (const auto include = fields.get("include")) {
    simdjson::dom::array names;
    if (include->get(names) != simdjson::SUCCESS) {
      return fields.fail(wrong_type("include", "an array of strings", *include));
    }
    for (const JsonElement item : names) {
      std::string_view name;
      if (item.get(name) != simdjson::SUCCESS) {
        return fields.fail(wrong_type("include", "an array of strings", *include));
      }
      wanted = wanted || name == "message.output_text.logprobs";
    }
  }
  request.sampling.num_logprobs = wanted ? static_cast<std::int32_t>(top) : -1;
}

void refuse_unsupported(JsonFields& fields) {
  for (const std::string_view name : {"conversation", "prompt"}) {
    if (fields.has(name)) {
      fields.fail(unsupported(name, "This server keeps no such objects."));
    }
  }
  bool background = false;
  fields.read("background", background);
  if (background) {
    fields.fail(unsupported("background", "This server answers while the client waits."));
  }
  if (const auto tools = fields.get("tools")) {
    simdjson::dom::array array;
    if (tools->get(array) != simdjson::SUCCESS) {
      fields.fail(wrong_type("tools", "an array", *tools));
    } else if (array.size() > 0) {
      fields.fail(unsupported("tools", "Use /v1/chat/completions for tool calls."));
    }
  }
  std::string choice = "auto";
  if (const auto value = fields.get("tool_choice"); value && !value->is_string()) {
    fields.fail(unsupported("tool_choice", "Use /v1/chat/completions for tool calls."));
  } else {
    fields.read("tool_choice", choice);
  }
  if (choice != "auto" && choice != "none") {
    fields.fail(unsupported("tool_choice", "Use /v1/chat/completions for tool calls."));
  }
  std::string truncation = "disabled";
  fields.read("truncation", truncation);
  if (truncation != "disabled" && truncation != "auto") {
    fields.fail(out_of_range("truncation", "must be 'auto' or 'disabled'"));
  } else if (truncation == "auto") {
    fields.fail(unsupported("truncation", "A prompt over the context is refused, never cut."));
  }
  if (const auto reasoning = fields.get("reasoning")) {
    simdjson::dom::object object;
    std::string_view effort;
    if (reasoning->get(object) != simdjson::SUCCESS) {
      fields.fail(wrong_type("reasoning", "an object", *reasoning));
    } else if (object["effort"].get(effort) == simdjson::SUCCESS && effort != "none") {
      fields.fail(unsupported("reasoning.effort", "The models served here have no such setting."));
    }
  }
}

}  // namespace

ApiResult<ApiRequest> parse_responses_request(std::string_view body) {
  simdjson::dom::parser parser;
  auto object = parse_json_object(parser, body);
  if (!object) {
    return std::unexpected(std::move(object).error());
  }
  ApiRequest request;
  request.endpoint = Endpoint::Responses;
  JsonFields fields(*object, kFields);
  request.ignored_fields = fields.unknown();
  if (!fields.has("model")) {
    return std::unexpected(missing("model"));
  }
  fields.read("model", request.model);
  read_input(fields, request);
  fields.read("instructions", request.responses.instructions);
  fields.read("previous_response_id", request.responses.previous_id);
  fields.read("store", request.responses.store);
  fields.read("max_output_tokens", 1, kMaxTokenCount, request.max_tokens);
  fields.read("stream", request.stream);
  if (!request.stream && fields.has("stream_options")) {
    fields.fail(bad_request("invalid_value",
                            "stream_options",
                            "'stream_options' is allowed only when 'stream' is true."));
  }
  read_sampling(fields, request);
  read_include(fields, request);
  read_text(fields);
  read_client(fields, request);
  refuse_unsupported(fields);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return request;
}

}  // namespace baton::gateway
