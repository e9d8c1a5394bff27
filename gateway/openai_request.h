// What a client asked for, after its JSON body has been read and every field checked, before
// template and tokenizer. Also the parser's entry points.
//
// Thread: plain values; the parser is a pure function over one body. Failure: an ApiError that
// names the field; malformed JSON is a 400 with the byte position.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/config/gateway_section.h"
#include "common/types/request.h"
#include "engine/chat_template/chat_template.h"
#include "gateway/api_error.h"

namespace baton::gateway {

enum class Endpoint : std::uint8_t { Chat, Completions };

struct ApiRequest {
  Endpoint endpoint = Endpoint::Chat;
  std::string model;

  // Chat: the messages. Completions: text, or token ids when `prompt_is_ids`.
  std::vector<engine::ChatMessage> messages;
  std::string prompt;
  std::vector<TokenId> prompt_ids;
  bool prompt_is_ids = false;
  bool add_generation_prompt = true;
  std::string template_kwargs_json;  // an object, or empty

  SamplingParams sampling;                  // seed is not set here
  std::optional<std::uint64_t> seed;        // absent: drawn at admission
  std::optional<std::uint32_t> max_tokens;  // absent: the endpoint's default
  std::uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop;
  bool include_stop_text = false;
  bool skip_special_tokens = true;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // usage in every chunk (stream_options.continuous_usage_stats)
  bool return_token_ids = false;
  std::optional<Tier> service_tier;  // absent: auto, or not asked for
  bool names_tier = false;           // it was asked for: the reply says which it was
  std::uint32_t ignored_fields = 0;  // names nobody here knows
};

inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::uint32_t kMaxStopStrings = 4;
inline constexpr std::uint32_t kMaxStopTokenIds = 128;
inline constexpr std::uint32_t kDefaultCompletionTokens = 16;

// Of names that occur twice in one object the last counts. `body` is only read.
ApiResult<ApiRequest> parse_api_request(Endpoint endpoint, std::string_view body);

}  // namespace baton::gateway
