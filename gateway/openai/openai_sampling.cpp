#include "gateway/openai/openai_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace baton::gateway {
namespace {

constexpr std::int64_t kMaxTokenId = std::numeric_limits<TokenId>::max();

// {"token id": bias}
void read_logit_bias(JsonFields& fields, SamplingParams& sampling) {
  const auto value = fields.get("logit_bias");
  simdjson::dom::object object;
  if (!value) {
    return;
  }
  if (value->get(object) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("logit_bias", "an object", *value));
  }
  std::map<TokenId, float> biases;  // of an id that comes twice the last counts
  for (const auto& [key, item] : object) {
    TokenId token = 0;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (fault != std::errc() || end != key.data() + key.size() || token < 0) {
      return fields.fail(
          out_of_range("logit_bias", fmt::format("'{}' is no token id", key.substr(0, 64))));
    }
    double bias = 0;
    if (item.get(bias) != simdjson::SUCCESS) {
      return fields.fail(wrong_type(fmt::format("logit_bias.{}", token), "a number", item));
    }
    if (!(bias >= -100 && bias <= 100)) {
      return fields.fail(
          out_of_range("logit_bias",
                       fmt::format("token {}: must be between -100 and 100, got {}", token, bias)));
    }
    biases[token] = static_cast<float>(bias);
  }
  if (biases.size() > kMaxLogitBias) {
    return fields.fail(
        out_of_range("logit_bias", fmt::format("at most {} tokens are allowed", kMaxLogitBias)));
  }
  for (const auto& [token, bias] : biases) {
    sampling.logit_bias.push_back({token, bias});
  }
}

}  // namespace

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
  read_logit_bias(fields, sampling);
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

void read_scoring(JsonFields& fields, ApiRequest& request) {
  std::int64_t alternatives = -1;
  fields.read("prompt_logprobs", 0, 20, alternatives);
  request.prompt_logprobs = static_cast<std::int32_t>(alternatives);
  if (request.stream && request.prompt_logprobs >= 0) {
    fields.fail(unsupported("prompt_logprobs", "It is not sent in a stream; leave out 'stream'."));
  }
  if (request.stream && request.echoes_logprobs()) {
    fields.fail(unsupported(
        "echo", "With 'logprobs' the prompt is not sent in a stream; leave out 'stream'."));
  }
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

}  // namespace baton::gateway
