// From a JSON body to an ApiRequest: the body is parsed once, whole, then each field is read by
// name. Fields fall in three groups: honoured here, refused because ignoring them would change the
// meaning of the answer, and ignored on purpose (bookkeeping such as `user`).
#include "gateway/openai_request.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <limits>

#include "gateway/json_fields.h"
#include "gateway/json_text.h"
#include "gateway/openai_messages.h"

namespace baton::gateway {
namespace {

constexpr std::int64_t kMaxTokenCount = 1U << 30;
constexpr std::int64_t kMaxTokenId = std::numeric_limits<TokenId>::max();

// Every field we know, sorted.
constexpr auto kFields = std::to_array<std::string_view>({
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
static_assert(std::is_sorted(kFields.begin(), kFields.end()));

// Their effect is not there yet, and an answer without it would be another answer.
constexpr auto kUnsupported = std::to_array<std::string_view>({"audio",
                                                               "function_call",
                                                               "functions",
                                                               "grammar",
                                                               "guided_choice",
                                                               "guided_grammar",
                                                               "guided_json",
                                                               "guided_regex",
                                                               "prediction",
                                                               "structured_outputs",
                                                               "suffix",
                                                               "web_search_options"});

ApiError unsupported(std::string_view param, std::string_view what) {
  return bad_request("unsupported_parameter",
                     std::string(param),
                     fmt::format("Unsupported parameter: '{}'. {}", param, what));
}

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
  if (const auto tools = fields.get("tools"); tools && !is_empty(*tools)) {
    fields.fail(unsupported("tools", "This server does not support tool calls yet."));
  }
  if (const auto choice = fields.get("tool_choice");
      choice && !is_text(*choice, "none") && !is_text(*choice, "auto")) {
    fields.fail(unsupported("tool_choice", "This server does not support tool calls yet."));
  }
  if (const auto format = fields.get("response_format")) {
    simdjson::dom::object object;
    std::string_view type;
    if (format->get(object) != simdjson::SUCCESS) {
      fields.fail(wrong_type("response_format", "an object", *format));
    } else if (object["type"].get(type) != simdjson::SUCCESS) {
      fields.fail(bad_request("missing_required_parameter",
                              "response_format.type",
                              "Missing required parameter: 'response_format.type'."));
    } else if (type == "json_object" || type == "json_schema") {
      fields.fail(unsupported("response_format", "This server supports only type 'text' yet."));
    } else if (type != "text") {
      fields.fail(
          out_of_range("response_format.type", "must be 'text', 'json_object' or 'json_schema'"));
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
  if (const auto bias = fields.get("logit_bias"); bias && !is_empty(*bias)) {
    fields.fail(unsupported("logit_bias", "This server does not support it yet."));
  }
  for (const std::string_view name : {"echo", "continue_final_message"}) {
    bool wanted = false;
    fields.read(name, wanted);
    if (wanted) {
      fields.fail(unsupported(name, "This server does not support it yet."));
    }
  }
  for (const std::string_view name : {"n", "best_of"}) {
    std::int64_t count = 1;
    fields.read(name, 1, 128, count);
    if (count != 1) {
      fields.fail(unsupported(name, "This server answers with one choice; use 1."));
    }
  }
}

void read_sampling(JsonFields& fields, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  fields.read("temperature", 0, 2, sampling.temperature);
  fields.read("top_p", 0, 1, sampling.top_p);
  // The nucleus always holds the likeliest token, so 0 means that token alone.
  sampling.top_p = std::max(sampling.top_p, std::numeric_limits<float>::min());
  fields.read("min_p", 0, 1, sampling.min_p);
  fields.read("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.read("frequency_penalty", -2, 2, sampling.frequency_penalty);
  fields.read("repetition_penalty", 0, 100, sampling.repetition_penalty);
  if (sampling.repetition_penalty == 0) {
    fields.fail(out_of_range("repetition_penalty", "must be greater than 0"));
  }
  std::int64_t top_k = 0;
  fields.read("top_k", -1, std::numeric_limits<std::int32_t>::max(), top_k);
  sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));
  if (const auto seed = fields.get("seed")) {
    std::int64_t number = 0;
    std::uint64_t large = 0;
    if (seed->get(number) == simdjson::SUCCESS &&
        seed->type() != simdjson::dom::element_type::DOUBLE) {
      request.seed = static_cast<std::uint64_t>(number);
    } else if (seed->get(large) == simdjson::SUCCESS &&
               seed->type() == simdjson::dom::element_type::UINT64) {
      request.seed = large;
    } else {
      fields.fail(wrong_type("seed", "an integer", *seed));
    }
  }
}

void read_logprobs(JsonFields& fields, ApiRequest& request) {
  std::int64_t top = -1;
  if (request.endpoint == Endpoint::Completions) {
    fields.read("logprobs", 0, 5, top);
  } else {
    bool wanted = false;
    fields.read("logprobs", wanted);
    fields.read("top_logprobs", 0, 20, top);
    if (top > 0 && !wanted) {
      fields.fail(bad_request(
          "invalid_value", "top_logprobs", "'top_logprobs' needs 'logprobs' to be true."));
    }
    top = wanted ? std::max<std::int64_t>(top, 0) : -1;
  }
  request.sampling.num_logprobs = static_cast<std::int32_t>(top);
}

void read_token_ids(JsonFields& fields,
                    std::string_view name,
                    const JsonElement& value,
                    std::size_t limit,
                    std::vector<TokenId>& into) {
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return fields.fail(wrong_type(name, "an array of integers", value));
  }
  for (const JsonElement item : array) {
    std::int64_t id = 0;
    if (item.type() != simdjson::dom::element_type::INT64 || item.get(id) != simdjson::SUCCESS) {
      return fields.fail(wrong_type(fmt::format("{}[{}]", name, into.size()), "an integer", item));
    }
    if (id < 0 || id > kMaxTokenId) {
      return fields.fail(out_of_range(fmt::format("{}[{}]", name, into.size()),
                                      fmt::format("{} is no token id", id)));
    }
    if (into.size() == limit) {
      return fields.fail(out_of_range(name, fmt::format("at most {} ids are allowed", limit)));
    }
    into.push_back(static_cast<TokenId>(id));
  }
}

void read_stop(JsonFields& fields, ApiRequest& request) {
  if (const auto stop = fields.get("stop")) {
    std::string_view text;
    simdjson::dom::array array;
    if (stop->get(text) == simdjson::SUCCESS) {
      request.stop.emplace_back(text);
    } else if (stop->get(array) != simdjson::SUCCESS) {
      fields.fail(wrong_type("stop", "a string or an array of strings", *stop));
    } else {
      for (const JsonElement item : array) {
        if (item.get(text) != simdjson::SUCCESS) {
          fields.fail(wrong_type(fmt::format("stop[{}]", request.stop.size()), "a string", item));
          break;
        }
        request.stop.emplace_back(text);
      }
    }
    if (request.stop.size() > kMaxStopStrings) {
      fields.fail(
          out_of_range("stop", fmt::format("at most {} strings are allowed", kMaxStopStrings)));
    }
    for (const std::string& item : request.stop) {
      if (item.empty()) {
        fields.fail(out_of_range("stop", "a stop string must not be empty"));
      }
    }
  }
  if (const auto ids = fields.get("stop_token_ids")) {
    read_token_ids(fields, "stop_token_ids", *ids, kMaxStopTokenIds, request.stop_token_ids);
  }
  fields.read("include_stop_str_in_output", request.include_stop_text);
  fields.read("skip_special_tokens", request.skip_special_tokens);
  fields.read("ignore_eos", request.ignore_eos);
}

void read_limits(JsonFields& fields, ApiRequest& request) {
  fields.read("max_tokens", 1, kMaxTokenCount, request.max_tokens);
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

void read_tier(JsonFields& fields, ApiRequest& request) {
  std::string name;
  fields.read("service_tier", name);
  if (name.empty()) {
    return;
  }
  request.names_tier = true;
  if (name == "auto") {
    return;
  }
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    if (name == kTierNames[i] || (name == "scale" && kTierNames[i] == "default")) {
      request.service_tier = static_cast<Tier>(i);
      return;
    }
  }
  fields.fail(out_of_range("service_tier", "must be one of auto, default, priority, flex"));
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

void read_prompt(JsonFields& fields, ApiRequest& request) {
  const auto value = fields.get("prompt");
  if (!value) {
    return fields.fail(bad_request(
        "missing_required_parameter", "prompt", "Missing required parameter: 'prompt'."));
  }
  std::string_view text;
  simdjson::dom::array array;
  if (value->get(text) == simdjson::SUCCESS) {
    request.prompt = text;
    return;
  }
  if (value->get(array) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("prompt", "a string or an array", *value));
  }
  if (array.size() == 0) {
    return fields.fail(out_of_range("prompt", "must not be an empty array"));
  }
  const JsonElement first = array.at(0).value_unsafe();
  if (first.is_int64() || first.is_uint64()) {
    request.prompt_is_ids = true;
    return read_token_ids(
        fields, "prompt", *value, std::numeric_limits<std::size_t>::max(), request.prompt_ids);
  }
  if (array.size() > 1) {
    return fields.fail(unsupported("prompt", "This server takes one prompt a request yet."));
  }
  if (first.get(text) == simdjson::SUCCESS) {
    request.prompt = text;
    return;
  }
  if (first.is_array()) {
    request.prompt_is_ids = true;
    read_token_ids(
        fields, "prompt[0]", first, std::numeric_limits<std::size_t>::max(), request.prompt_ids);
    if (request.prompt_ids.empty()) {
      fields.fail(out_of_range("prompt", "must not be empty"));
    }
    return;
  }
  fields.fail(wrong_type("prompt[0]", "a string, an integer or an array", first));
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
  fields.read("add_generation_prompt", request.add_generation_prompt);
  if (const auto kwargs = fields.get("chat_template_kwargs")) {
    if (!kwargs->is_object()) {
      return fields.fail(wrong_type("chat_template_kwargs", "an object", *kwargs));
    }
    if (!is_empty(*kwargs)) {
      request.template_kwargs_json = simdjson::minify(*kwargs);
    }
  }
}

ApiError malformed(std::string_view body, simdjson::error_code code) {
  const auto fault = find_json_fault(body, kMaxJsonDepth);
  std::string where = fault ? fmt::format("{} at byte {}", fault->what, fault->offset)
                            : std::string(simdjson::error_message(code));
  return bad_request(
      "invalid_json", "", fmt::format("The request body is not valid JSON: {}.", where));
}

}  // namespace

ApiResult<ApiRequest> parse_api_request(Endpoint endpoint, std::string_view body) {
  simdjson::dom::parser parser;
  // One level more than allowed: simdjson counts the document itself.
  if (const auto code =
          parser.allocate(std::max<std::size_t>(body.size(), 64), kMaxJsonDepth + 1)) {
    return std::unexpected(malformed(body, code));
  }
  JsonElement root;
  if (const auto code = parser.parse(body.data(), body.size()).get(root)) {
    return std::unexpected(malformed(body, code));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return std::unexpected(
        bad_request("invalid_type",
                    "",
                    fmt::format("The request body must be a JSON object, but it is {}.",
                                json_type_name(root))));
  }
  ApiRequest request;
  request.endpoint = endpoint;
  JsonFields fields(object, kFields);
  request.ignored_fields = fields.unknown();
  if (!fields.has("model")) {
    return std::unexpected(
        bad_request("missing_required_parameter", "model", "Missing required parameter: 'model'."));
  }
  fields.read("model", request.model);
  if (endpoint == Endpoint::Chat) {
    read_chat(fields, request);
  } else {
    read_prompt(fields, request);
  }
  read_limits(fields, request);
  read_sampling(fields, request);
  read_logprobs(fields, request);
  read_stop(fields, request);
  read_stream(fields, request);
  read_tier(fields, request);
  fields.read("return_token_ids", request.return_token_ids);
  refuse_unsupported(fields);
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  return request;
}

}  // namespace baton::gateway
