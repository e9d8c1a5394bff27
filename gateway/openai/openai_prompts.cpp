#include "gateway/openai/openai_prompts.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "gateway/openai/openai_sampling.h"

namespace baton::gateway {
namespace {

ApiPrompt read_one_prompt(JsonFields& fields, std::string_view name, const JsonElement& value) {
  ApiPrompt prompt;
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    prompt.text = text;
    return prompt;
  }
  prompt.is_ids = true;
  read_token_ids(fields, name, value, std::numeric_limits<std::size_t>::max(), prompt.ids);
  if (prompt.ids.empty()) {
    fields.fail(out_of_range(name, "must not be an empty array"));
  }
  return prompt;
}

}  // namespace

void read_prompts(JsonFields& fields, ApiRequest& request) {
  fields.read("echo", request.echo);
  const auto value = fields.get("prompt");
  if (!value) {
    return fields.fail(bad_request(
        "missing_required_parameter", "prompt", "Missing required parameter: 'prompt'."));
  }
  simdjson::dom::array array;
  if (value->is_string()) {
    return request.prompts.push_back(read_one_prompt(fields, "prompt", *value));
  }
  if (value->get(array) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("prompt", "a string or an array", *value));
  }
  if (array.size() == 0) {
    return fields.fail(out_of_range("prompt", "must not be an empty array"));
  }
  const JsonElement first = array.at(0).value_unsafe();
  if (first.is_int64() || first.is_uint64()) {
    return request.prompts.push_back(read_one_prompt(fields, "prompt", *value));
  }
  request.prompt_is_list = true;
  for (const JsonElement item : array) {
    const std::string name = fmt::format("prompt[{}]", request.prompts.size());
    if (request.prompts.size() == kMaxChoices) {
      return fields.fail(
          out_of_range("prompt", fmt::format("at most {} prompts are allowed", kMaxChoices)));
    }
    if (!item.is_string() && !item.is_array()) {
      return fields.fail(wrong_type(name, "a string or an array of integers", item));
    }
    request.prompts.push_back(read_one_prompt(fields, name, item));
  }
}

void read_choices(JsonFields& fields, ApiRequest& request) {
  std::int64_t n = 1;
  fields.read("n", 1, kMaxChoices, n);
  request.n = static_cast<std::uint32_t>(n);
  std::int64_t best_of = n;
  fields.read("best_of", 1, kMaxChoices, best_of);
  if (best_of != n) {
    fields.fail(unsupported("best_of", "This server returns every choice it makes; leave it out."));
  }
  if (request.prompts.size() * request.n > kMaxChoices) {
    fields.fail(out_of_range("n",
                             fmt::format("{} prompts with {} choices each are more than {} choices",
                                         request.prompts.size(),
                                         request.n,
                                         kMaxChoices)));
  }
}

}  // namespace baton::gateway
