#include "gateway/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/chat_template/encode_chat.h"

namespace baton::gateway {
namespace {

std::string_view prompt_param(const ApiRequest& api) {
  return api.endpoint == Endpoint::Chat ? "messages" : "prompt";
}

// `count`: the number of tokens in words.
ApiError too_long(const ApiRequest& api,
                  const ServedModel& model,
                  const std::string& count,
                  std::string_view remark = "") {
  return bad_request("context_length_exceeded",
                     std::string(prompt_param(api)),
                     fmt::format("This model's maximum context length is {} tokens, but the prompt "
                                 "has {} tokens{}. Shorten it.",
                                 model.max_tokens,
                                 count,
                                 remark));
}

ApiResult<std::vector<TokenId>> chat_prompt(const ApiRequest& api,
                                            const ServedModel& model,
                                            std::int64_t unix_seconds) {
  const ModelArtifacts& artifacts = *model.artifacts;
  if (artifacts.chat_template == nullptr) {
    return std::unexpected(bad_request(
        "unsupported_value", "model", "This model has no chat template; use /v1/completions."));
  }
  engine::ChatTemplateInput input;
  input.messages = api.messages;
  input.add_generation_prompt = api.add_generation_prompt;
  input.kwargs_json = api.template_kwargs_json;
  input.unix_seconds = unix_seconds;
  auto ids = engine::encode_chat(
      *artifacts.chat_template, *artifacts.tokenizer, std::move(input), model.max_tokens);
  if (!ids && ids.error().code == ErrorCode::ContextTooLong) {
    return std::unexpected(too_long(api, model, ids.error().message));
  }
  if (!ids) {
    return std::unexpected(bad_request(
        "invalid_value",
        "messages",
        fmt::format("The model's chat template refuses these messages: {}", ids.error().message)));
  }
  return std::move(*ids);
}

ApiResult<std::vector<TokenId>> completion_prompt(const ApiRequest& api, const ServedModel& model) {
  if (!api.prompt_is_ids) {
    // Tokenizing 32 MB of one word takes seconds of a thread that others wait for.
    const std::size_t least = model.artifacts->tokenizer->least_tokens(api.prompt.size());
    if (least > model.max_tokens) {
      return std::unexpected(too_long(api, model, fmt::format("at least {}", least)));
    }
    return model.artifacts->tokenizer->encode(api.prompt, true, true);
  }
  for (std::size_t i = 0; i < api.prompt_ids.size(); ++i) {
    if (static_cast<std::uint32_t>(api.prompt_ids[i]) >= model.vocab_size) {
      return std::unexpected(
          bad_request("invalid_value",
                      fmt::format("prompt[{}]", i),
                      fmt::format("Token id {} is outside the vocabulary of {} tokens.",
                                  api.prompt_ids[i],
                                  model.vocab_size)));
    }
  }
  return api.prompt_ids;
}

}  // namespace

ApiResult<GenerateRequest> build_request(const ApiRequest& api,
                                         const ServedModel& model,
                                         RequestId id,
                                         std::uint64_t fallback_seed,
                                         std::int64_t unix_seconds) {
  auto prompt = api.endpoint == Endpoint::Chat ? chat_prompt(api, model, unix_seconds)
                                               : completion_prompt(api, model);
  if (!prompt) {
    return std::unexpected(std::move(prompt).error());
  }
  if (prompt->empty()) {
    return std::unexpected(bad_request(
        "invalid_value", std::string(prompt_param(api)), "The prompt is empty: it has no token."));
  }
  const std::size_t limit = model.max_tokens;
  if (prompt->size() >= limit) {
    return std::unexpected(
        too_long(api,
                 model,
                 std::to_string(prompt->size()),
                 prompt->size() == limit ? ", which leaves no room for an answer" : ""));
  }
  const auto room = static_cast<std::uint32_t>(limit - prompt->size());
  GenerateRequest request;
  request.id = id;
  request.model = model.id;
  request.prompt = std::move(*prompt);
  request.sampling = api.sampling;
  request.sampling.seed = api.seed.value_or(fallback_seed);
  const std::uint32_t wanted =
      api.max_tokens.value_or(api.endpoint == Endpoint::Chat ? room : kDefaultCompletionTokens);
  request.max_tokens = std::min(wanted, room);
  request.min_tokens = std::min(api.min_tokens, request.max_tokens);
  if (!api.ignore_eos) {
    const auto ends = model.artifacts->tokenizer->stop_tokens();
    request.stop_tokens.assign(ends.begin(), ends.end());
  }
  for (const TokenId stop : api.stop_token_ids) {
    if (static_cast<std::uint32_t>(stop) >= model.vocab_size) {
      return std::unexpected(bad_request(
          "invalid_value",
          "stop_token_ids",
          fmt::format(
              "Token id {} is outside the vocabulary of {} tokens.", stop, model.vocab_size)));
    }
    request.stop_tokens.push_back(stop);
  }
  return request;
}

}  // namespace baton::gateway
