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
#include "gateway/http/api_error.h"
#include "gateway/openai/structured_output.h"
#include "gateway/tools/tool_request.h"

namespace baton::gateway {

enum class Endpoint : std::uint8_t { Chat, Completions, Responses };

// A prompt of completions.
struct ApiPrompt {
  std::string text;
  std::vector<TokenId> ids;  // instead of text, when `is_ids`
  bool is_ids = false;
};

// What only /v1/responses has.
struct ResponsesFields {
  std::string instructions;  // comes before the messages, and is not kept
  std::string previous_id;   // of a kept response whose conversation goes on
  bool store = false;        // keep the answer
  // As they were sent, since the response repeats them; empty: not given.
  std::string tools_json;
  std::string tool_choice_json;
  std::string format_json;  // of `text`
};

struct ApiRequest {
  Endpoint endpoint = Endpoint::Chat;
  std::string model;

  std::vector<engine::ChatMessage> messages;  // chat and responses
  std::vector<ApiPrompt> prompts;             // completions; never empty there
  bool prompt_is_list = false;                // errors then name prompt[i]
  std::uint32_t n = 1;                        // choices of each prompt
  bool echo = false;                          // completions: the prompt comes back before the text
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // chat: the answer goes on where the last message ends
  std::string template_kwargs_json;     // an object, or empty
  ToolRequest tools;

  SamplingParams sampling;                  // seed is not set here
  std::optional<std::uint64_t> seed;        // absent: drawn at admission
  std::optional<std::uint32_t> max_tokens;  // absent: the endpoint's default; 0 only with `echo`
  std::uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop;
  bool include_stop_text = false;
  bool skip_special_tokens = true;
  StructuredOutput output;  // what the answer must be; grammar.kind None: text

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // usage in every chunk (stream_options.continuous_usage_stats)
  bool return_token_ids = false;
  std::int32_t prompt_logprobs = -1;  // -1: none; 0..20 alternatives for each token of the prompt

  // Of the client's affairs; empty: not given.
  std::string user;
  std::string safety_identifier;
  std::string prompt_cache_key;
  std::optional<Tier> service_tier;  // absent: auto, or not asked for
  bool names_tier = false;           // it was asked for: the reply says which it was
  std::int32_t priority = 0;         // lower is more urgent
  std::string metadata_json;         // an object

  ResponsesFields responses;

  std::uint32_t ignored_fields = 0;  // names nobody here knows

  bool is_chat() const { return endpoint != Endpoint::Completions; }
  bool echoes_logprobs() const { return echo && sampling.num_logprobs >= 0; }
  // Only the prompt is wanted: what is generated is not shown and not counted.
  bool hides_output() const { return max_tokens && *max_tokens == 0; }
};

inline constexpr std::uint32_t kMaxChoices = 128;  // of one request, over all its prompts
inline constexpr std::int64_t kMaxTokenCount = 1U << 30;
inline constexpr std::uint32_t kMaxStopStrings = 4;
inline constexpr std::uint32_t kMaxStopTokenIds = 128;
inline constexpr std::uint32_t kDefaultCompletionTokens = 16;

// Of names that occur twice in one object the last counts. `body` is only read.
ApiResult<ApiRequest> parse_api_request(Endpoint endpoint, const std::string& body);

// Of /tokenize: a chat, or one text, whose other fields are left alone.
struct TokenizeRequest {
  ApiRequest prompt;        // model may be empty
  bool add_special = true;  // tokens that stand before every text; a chat template has its own
  bool wants_strings = false;
};

ApiResult<TokenizeRequest> parse_tokenize_request(const std::string& body);

}  // namespace baton::gateway
