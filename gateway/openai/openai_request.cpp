// From a JSON body to an ApiRequest: the body is parsed once, whole, then each field is read by
// name. Fields fall in three groups: honoured here, refused because ignoring them would change the
// meaning of the answer, and ignored on purpose (bookkeeping such as `user`).
#include "gateway/openai/openai_request.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>

#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_client.h"
#include "gateway/openai/openai_messages.h"
#include "gateway/openai/openai_prompts.h"
#include "gateway/openai/openai_sampling.h"

namespace baton::gateway {
namespace {

// Every field we know, sorted.
constexpr auto kRequestFields = std::to_array<std::string_view>({
    "add_generation_prompt",
    "audio",
    "best_of",
    "cache_salt",
    "chat_template_kwargs",
    "continue_final_message",
    "echo",
    "frequency_penalty",
    "function_call",
    "functions",
    "grammar",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "kv_transfer_params",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "min_tokens",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "priority",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_logprobs",
    "reasoning_effort",
    "repetition_penalty",
    "request_id",
    "response_format",
    "return_token_ids",
    "safety_identifier",
    "seed",
    "service_tier",
    "session_id",
    "skip_special_tokens",
    "stop",
    "stop_token_ids",
    "store",
    "stream",
    "stream_options",
    "structured_outputs",
    "suffix",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
});
static_assert(std::is_sorted(kRequestFields.begin(), kRequestFields.end()));

// Their effect is not there yet, and an answer without it would be another answer.
constexpr auto kUnsupported = std::to_array<std::string_view>(
    {"audio", "grammar", "prediction", "suffix", "web_search_options"});

bool is_empty(const JsonElement& value) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  std::string_view text;
  return (value.get(array) == simdjson::SUCCESS && array.size() == 0) ||
         (value.get(object) == simdjson::SUCCESS && object.size() == 0) ||
         (value.get(text) == simdjson::SUCCESS && text.empty());
}

bool is_text(const JsonElement& value, std::string_view text) {
  std::string_view found;
  return value.get(found) == simdjson::SUCCESS && found == text;
}

void refuse_unsupported(JsonFields& fields) {
  for (const std::string_view name : kUnsupported) {
    if (const auto value = fields.get(name); value && !is_empty(*value)) {
      fields.fail(unsupported(name, "This server does not support it yet."));
    }
  }
  if (const auto effort = fields.get("reasoning_effort"); effort && !is_text(*effort, "none")) {
    fields.fail(unsupported("reasoning_effort", "The models served here have no such setting."));
  }
  if (const auto verbosity = fields.get("verbosity"); verbosity && !is_text(*verbosity, "medium")) {
    fields.fail(unsupported("verbosity", "The models served here have no such setting."));
  }
  if (const auto modalities = fields.get("modalities")) {
    simdjson::dom::array array;
    if (modalities->get(array) != simdjson::SUCCESS) {
      return fields.fail(wrong_type("modalities", "an array", *modalities));
    }
    for (const JsonElement item : array) {
      if (!is_text(item, "text")) {
        fields.fail(unsupported("modalities", "This server answers with text alone."));
      }
    }
  }
}

void read_limits(JsonFields& fields, ApiRequest& request) {
  // Nothing but the prompt and its log-probabilities: only where the prompt comes back.
  fields.read("max_tokens", request.echo ? 0 : 1, kMaxTokenCount, request.max_tokens);
  if (request.endpoint == Endpoint::Chat) {
    fields.read("max_completion_tokens", 1, kMaxTokenCount, request.max_tokens);
  }
  std::int64_t least = 0;
  fields.read("min_tokens", 0, kMaxTokenCount, least);
  request.min_tokens = static_cast<std::uint32_t>(least);
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    fields.fail(out_of_range(
        "min_tokens",
        fmt::format("{} is more than max_tokens, {}", request.min_tokens, *request.max_tokens)));
  }
}

void read_output(JsonFields& fields, ApiRequest& request) {
  request.output = read_structured_output(fields);
  if (request.output.grammar.kind == Grammar::Kind::None) {
    return;
  }
  // A whole answer must be able to end, and must not have to go on.
  for (const auto& [name, is_set] :
       {std::pair<std::string_view, bool>{"ignore_eos", request.ignore_eos},
        {"min_tokens", request.min_tokens > 0}}) {
    if (is_set) {
      fields.fail(bad_request(
          "invalid_value",
          std::string(name),
          fmt::format("'{}' cannot be combined with '{}'.", name, request.output.param)));
    }
  }
}

void read_stream(JsonFields& fields, ApiRequest& request) {
  fields.read("stream", request.stream);
  const auto options = fields.get("stream_options");
  if (!options) {
    return;
  }
  simdjson::dom::object object;
  if (options->get(object) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("stream_options", "an object", *options));
  }
  if (!request.stream) {
    return fields.fail(bad_request("invalid_value",
                                   "stream_options",
                                   "'stream_options' is allowed only when 'stream' is true."));
  }
  static constexpr auto kOptions = std::to_array<std::string_view>(
      {"continuous_usage_stats", "include_obfuscation", "include_usage"});
  JsonFields inner(object, kOptions, "stream_options.");
  inner.read("include_usage", request.include_usage);
  inner.read("continuous_usage_stats", request.continuous_usage);
  request.ignored_fields += inner.unknown();
  if (inner.error()) {
    fields.fail(*inner.error());
  }
}

void read_chat(JsonFields& fields, ApiRequest& request) {
  const auto messages = fields.get("messages");
  if (!messages) {
    return fields.fail(bad_request(
        "missing_required_parameter", "messages", "Missing required parameter: 'messages'."));
  }
  if (auto read = read_messages(*messages, request.messages); !read) {
    fields.fail(std::move(read).error());
  }
  read_tools(fields, ToolShape::Nested, request.tools);
  bool echo = false;
  fields.read("echo", echo);
  if (echo) {
    fields.fail(unsupported("echo", "It belongs to /v1/completions."));
  }
  fields.read("continue_final_message", request.continue_final_message);
  request.add_generation_prompt = !request.continue_final_message;
  fields.read("add_generation_prompt", request.add_generation_prompt);
  if (request.continue_final_message && request.add_generation_prompt) {
    fields.fail(bad_request("invalid_value",
                            "continue_final_message",
                            "'continue_final_message' and 'add_generation_prompt' cannot both be "
                            "true: the last message goes on, or another begins."));
  }
  if (const auto kwargs = fields.get("chat_template_kwargs")) {
    if (!kwargs->is_object()) {
      return fields.fail(wrong_type("chat_template_kwargs", "an object", *kwargs));
    }
    if (!is_empty(*kwargs)) {
      request.template_kwargs_json = simdjson::minify(*kwargs);
    }
  }
}

}  // namespace

ApiResult<ApiRequest> parse_api_request(Endpoint endpoint, const std::string& body) {
  JsonBody json;
  auto object = json.parse(body);
  if (!object) {
    return std::unexpected(std::move(object).error());
  }
  ApiRequest request;
  request.endpoint = endpoint;
  JsonFields fields(*object, kRequestFields);
  request.ignored_fields = fields.unknown();
  if (!fields.has("model")) {
    return std::unexpected(
        bad_request("missing_required_parameter", "model", "Missing required parameter: 'model'."));
  }
  fields.read("model", request.model);
  if (endpoint == Endpoint::Chat) {
    read_chat(fields, request);
  } else {
    read_prompts(fields, request);
    refuse_tools(fields);
  }
  read_choices(fields, request);
  read_limits(fields, request);
  read_sampling(fields, request);
  read_logprobs(fields, request);
  read_stop(fields, request);
  read_output(fields, request);
  read_stream(fields, request);
  read_scoring(fields, request);
  read_client(fields, request);
  fields.read("return_token_ids", request.return_token_ids);
  refuse_unsupported(fields);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize_request(const std::string& body) {
  JsonBody json;
  auto object = json.parse(body);
  if (!object) {
    return std::unexpected(std::move(object).error());
  }
  static constexpr auto kNames = std::to_array<std::string_view>({"add_generation_prompt",
                                                                  "add_special_tokens",
                                                                  "chat_template_kwargs",
                                                                  "continue_final_message",
                                                                  "echo",
                                                                  "messages",
                                                                  "model",
                                                                  "prompt",
                                                                  "return_token_strs"});
  JsonFields fields(*object, kNames);
  TokenizeRequest request;
  fields.read("model", request.prompt.model);
  if (fields.has("messages") && fields.has("prompt")) {
    fields.fail(bad_request("invalid_value", "prompt", "Give 'prompt' or 'messages', not both."));
  }
  if (fields.has("messages")) {
    request.prompt.endpoint = Endpoint::Chat;
    read_chat(fields, request.prompt);
  } else {
    request.prompt.endpoint = Endpoint::Completions;
    std::string text;
    if (!fields.has("prompt")) {
      fields.fail(bad_request("missing_required_parameter",
                              "prompt",
                              "Missing required parameter: 'prompt' or 'messages'."));
    }
    fields.read("prompt", text);
    request.prompt.prompts.push_back({std::move(text), {}, false});
  }
  fields.read("add_special_tokens", request.add_special);
  fields.read("return_token_strs", request.wants_strings);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return request;
}

}  // namespace baton::gateway
