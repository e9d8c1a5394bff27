#include "gateway/responses_api/parse_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_client.h"
#include "gateway/openai/openai_sampling.h"
#include "gateway/openai/structured_output.h"
#include "gateway/responses_api/input_items.h"
#include "gateway/tools/tool_fields.h"
#include "gateway/tools/tool_request.h"

namespace baton::gateway {
namespace {

// Every field we know, sorted.
constexpr auto kResponseFields = std::to_array<std::string_view>({
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
static_assert(std::is_sorted(kResponseFields.begin(), kResponseFields.end()));

void read_text(JsonFields& fields, ApiRequest& request) {
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
    request.output = read_text_format(*format, inner);
    request.responses.format_json = simdjson::minify(*format);
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

void read_functions(JsonFields& fields, ApiRequest& request) {
  read_tools(fields, ToolShape::Flat, request.tools);
  if (const auto tools = fields.get("tools")) {
    request.responses.tools_json = simdjson::minify(*tools);
  }
  if (const auto choice = fields.get("tool_choice")) {
    request.responses.tool_choice_json = simdjson::minify(*choice);
  }
  // Of tools that run on a server, of which there are none here.
  std::optional<std::uint32_t> most;
  fields.read("max_tool_calls", 1, kMaxTokenCount, most);
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

void refuse_what_is_not_served(JsonFields& fields) {
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

ApiResult<ApiRequest> parse_responses_request(const std::string& body) {
  JsonBody json;
  auto object = json.parse(body);
  if (!object) {
    return std::unexpected(std::move(object).error());
  }
  ApiRequest request;
  request.endpoint = Endpoint::Responses;
  JsonFields fields(*object, kResponseFields);
  request.ignored_fields = fields.unknown();
  if (!fields.has("model")) {
    return std::unexpected(missing_field("model"));
  }
  fields.read("model", request.model);
  request.messages = read_input_items(fields);
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
  read_text(fields, request);
  read_functions(fields, request);
  read_client(fields, request);
  refuse_what_is_not_served(fields);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return request;
}

}  // namespace baton::gateway
