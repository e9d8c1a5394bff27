// How an answer is written: as chunks of a stream, or whole. One implementation for each API.
//
// Sequence of a stream: for each choice begin -> chunk* -> close, mixed with those of other
// choices; then finish. Or `fail` at any point, which is the end.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/types/token_event.h"
#include "gateway/http/api_error.h"
#include "gateway/tools/answer_part.h"

namespace baton::gateway {

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0;     // true hits of the prefill's prefix cache
  std::uint32_t reasoning_tokens = 0;  // of the completion's
};

// One token's log-probability with its text.
struct TextLogprob {
  std::string bytes;
  float logprob = 0;
  struct Top {
    std::string bytes;
    float logprob = 0;
  };
  std::vector<Top> top;
  bool is_known = true;  // false: the first token of an echoed prompt has none
};

// What one chunk, or the whole answer, says of its choice.
struct ChoiceText {
  std::string_view text;
  std::span<const TextLogprob> logprobs;
  std::uint32_t text_offset = 0;  // of the first log-probability's token in the completion
  std::span<const TokenId> token_ids;
  std::uint32_t index = 0;
  const AnswerParts* parts = nullptr;  // of a chat with tools or reasoning: instead of text
};

// How a choice ended.
struct ChoiceEnd {
  FinishReason finish = FinishReason::None;
  // The stop string, or the token id of `stop_token_ids`, that ended it; neither: null.
  std::string_view stop_string;
  std::optional<TokenId> stop_token;
  bool has_calls = false;  // Stop is told as "tool_calls"
};

// A choice that has ended.
struct WholeChoice {
  ChoiceText text;
  ChoiceEnd end;
  std::span<const TokenId> prompt_ids;
  std::string_view prompt_logprobs;  // JSON; empty: not asked for
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Server-sent events, appended to `out`.
  virtual void begin(std::string& out,
                     std::uint32_t index,
                     std::span<const TokenId> prompt_ids) = 0;
  virtual void chunk(std::string& out, const ChoiceText& choice, const Usage& usage) = 0;
  // `figures_json`: an object for the key "baton", or empty.
  virtual void close(std::string& out,
                     const ChoiceText& rest,
                     const ChoiceEnd& end,
                     const Usage& usage,
                     std::string_view figures_json) = 0;
  virtual void finish(std::string& out, const Usage& usage) = 0;
  virtual void fail(std::string& out, const ApiError& error) = 0;

  // The whole reply.
  virtual std::string whole(std::span<const WholeChoice> choices,
                            const Usage& usage,
                            std::string_view figures_json) = 0;
};

// A line that clients skip: it keeps a silent connection open.
inline constexpr std::string_view kSseComment = ": keep-alive\n\n";

}  // namespace baton::gateway
