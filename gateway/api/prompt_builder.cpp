#include "gateway/api/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/wire/convert.h"
#include "engine/chat_template/encode_chat.h"
#include "gateway/tools/chat_format.h"

namespace baton::gateway {
namespace {

// The field that prompt number `i` came from.
std::string prompt_param(const ApiRequest& api, std::size_t i) {
  return api.endpoint == Endpoint::Chat        ? "messages"
         : api.endpoint == Endpoint::Responses ? "input"
         : api.prompt_is_list                  ? fmt::format("prompt[{}]", i)
                                               : "prompt";
}

// `count`: the number of tokens in words.
ApiError too_long(const std::string& param,
                  const ServedModel& model,
                  const std::string& count,
                  std::string_view remark = "") {
  return bad_request("context_length_exceeded",
                     param,
                     fmt::format("This model's maximum context length is {} tokens, but the prompt "
                                 "has {} tokens{}. Shorten it.",
                                 model.max_tokens,
                                 count,
                                 remark));
}

// What is told of a prompt's tokens comes in one message, so the prompt is bounded by what fits.
ApiResult<void> ask_for_scores(const ApiRequest& api,
                               const std::string& param,
                               GenerateRequest& request) {
  request.prompt_logprobs =
      std::max(api.prompt_logprobs, api.echoes_logprobs() ? api.sampling.num_logprobs : -1);
  if (request.prompt_logprobs < 0) {
    return {};
  }
  if (!api.is_chat() && api.n > 1) {
    return std::unexpected(bad_request("invalid_value",
                                       "n",
                                       "Log-probabilities of a prompt are given with n 1: every "
                                       "further choice would compute the prompt again."));
  }
  const std::size_t most = max_scored_prompt(request.prompt_logprobs);
  if (request.prompt.size() <= most) {
    return {};
  }
  return std::unexpected(bad_request(
      "invalid_value",
      param,
      fmt::format("Log-probabilities with {} alternatives are given for prompts of at most {} "
                  "tokens, and this one has {}. Shorten it, or ask for fewer alternatives.",
                  request.prompt_logprobs,
                  most,
                  request.prompt.size())));
}

ApiResult<std::vector<TokenId>> chat_prompt(ApiRequest& api,
                                            const std::string& param,
                                            const ServedModel& model,
                                            std::int64_t unix_seconds) {
  const ModelArtifacts& artifacts = *model.artifacts;
  if (artifacts.chat_template == nullptr) {
    return std::unexpected(bad_request(
        "unsupported_value", "model", "This model has no chat template; use /v1/completions."));
  }
  engine::ChatTemplateInput input;
  if (auto written = write_messages(api, model, input); !written) {
    return std::unexpected(std::move(written).error());
  }
  input.add_generation_prompt = api.add_generation_prompt;
  input.continue_final_message = api.continue_final_message;
  input.kwargs_json = api.template_kwargs_json;
  input.unix_seconds = unix_seconds;
  auto ids = engine::encode_chat(
      *artifacts.chat_template, *artifacts.tokenizer, std::move(input), model.max_tokens);
  if (!ids && ids.error().code == ErrorCode::ContextTooLong) {
    return std::unexpected(too_long(param, model, ids.error().message));
  }
  if (!ids) {
    return std::unexpected(bad_request(
        "invalid_value",
        param,
        fmt::format("The model's chat template refuses these messages: {}", ids.error().message)));
  }
  return std::move(*ids);
}

ApiResult<std::vector<TokenId>> completion_prompt(const ApiPrompt& prompt,
                                                  const std::string& param,
                                                  const ServedModel& model,
                                                  bool add_special) {
  if (!prompt.is_ids) {
    // Tokenizing 32 MB of one word takes seconds of a thread that others wait for.
    const std::size_t least = model.artifacts->tokenizer->least_tokens(prompt.text.size());
    if (least > model.max_tokens) {
      return std::unexpected(too_long(param, model, fmt::format("at least {}", least)));
    }
    return model.artifacts->tokenizer->encode(prompt.text, true, add_special);
  }
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
    if (static_cast<std::uint32_t>(prompt.ids[i]) >= model.vocab_size) {
      return std::unexpected(
          outside_vocabulary(fmt::format("{}[{}]", param, i), prompt.ids[i], model));
    }
  }
  return prompt.ids;
}

}  // namespace

ApiError outside_vocabulary(std::string param, TokenId token, const ServedModel& model) {
  return bad_request(
      "invalid_value",
      std::move(param),
      fmt::format("Token id {} is outside the vocabulary of {} tokens.", token, model.vocab_size));
}

ApiResult<std::vector<TokenId>> tokenize_prompt(ApiRequest& api,
                                                const ServedModel& model,
                                                std::size_t i,
                                                std::int64_t unix_seconds,
                                                bool add_special) {
  const std::string param = prompt_param(api, i);
  return api.is_chat() ? chat_prompt(api, param, model, unix_seconds)
                       : completion_prompt(api.prompts[i], param, model, add_special);
}

namespace {

// Prompt number `i`, with the limits and stop tokens that its length leaves.
ApiResult<GenerateRequest> build_prompt(ApiRequest& api,
                                        const ServedModel& model,
                                        std::size_t i,
                                        std::int64_t unix_seconds) {
  const std::string param = prompt_param(api, i);
  auto prompt = tokenize_prompt(api, model, i, unix_seconds, true);
  if (!prompt) {
    return std::unexpected(std::move(prompt).error());
  }
  if (prompt->empty()) {
    return std::unexpected(
        bad_request("invalid_value", param, "The prompt is empty: it has no token."));
  }
  const std::size_t limit = model.max_tokens;
  if (prompt->size() >= limit) {
    return std::unexpected(
        too_long(param,
                 model,
                 std::to_string(prompt->size()),
                 prompt->size() == limit ? ", which leaves no room for an answer" : ""));
  }
  const auto room = static_cast<std::uint32_t>(limit - prompt->size());
  GenerateRequest request;
  request.model = model.id;
  request.prompt = std::move(*prompt);
  request.sampling = api.sampling;
  const std::uint32_t wanted =
      api.max_tokens.value_or(api.is_chat() ? room : kDefaultCompletionTokens);
  request.max_tokens = std::clamp<std::uint32_t>(wanted, 1, room);
  request.min_tokens = std::min(api.min_tokens, request.max_tokens);
  if (!api.ignore_eos) {
    const auto ends = model.artifacts->tokenizer->stop_tokens();
    request.stop_tokens.assign(ends.begin(), ends.end());
  }
  for (const LogitBias& entry : request.sampling.logit_bias) {
    if (static_cast<std::uint32_t>(entry.token) >= model.vocab_size) {
      return std::unexpected(outside_vocabulary("logit_bias", entry.token, model));
    }
  }
  if (auto scored = ask_for_scores(api, param, request); !scored) {
    return std::unexpected(std::move(scored).error());
  }
  for (const TokenId stop : api.stop_token_ids) {
    if (static_cast<std::uint32_t>(stop) >= model.vocab_size) {
      return std::unexpected(outside_vocabulary("stop_token_ids", stop, model));
    }
    request.stop_tokens.push_back(stop);
  }
  return request;
}

}  // namespace

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

ApiResult<std::vector<GenerateRequest>> build_requests(ApiRequest& api,
                                                       const ServedModel& model,
                                                       const RandomSource& random,
                                                       std::int64_t unix_seconds) {
  std::vector<GenerateRequest> choices;
  const std::size_t prompts = api.is_chat() ? 1 : api.prompts.size();
  for (std::size_t i = 0; i < prompts; ++i) {
    auto prompt = build_prompt(api, model, i, unix_seconds);
    if (!prompt) {
      return std::unexpected(std::move(prompt).error());
    }
    prompt->sampling.seed = api.seed ? *api.seed : random();
    for (std::uint32_t choice = 0; choice < api.n; ++choice) {
      const bool is_last = choice + 1 == api.n;
      choices.push_back(is_last ? std::move(*prompt) : *prompt);
      choices.back().id = RequestId{random()};
      choices.back().choice = choice;
      if (choice > 0) {
        choices.back().prompt_logprobs = -1;  // the first choice's are told
      }
    }
  }
  return choices;
}

}  // namespace baton::gateway
