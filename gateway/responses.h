// Writes the replies of the OpenAI API as text: chunks of a stream from one template a request, and
// whole answers. JSON is written, never built as a tree.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/answer_sink.h"
#include "gateway/openai_request.h"

namespace baton::gateway {

struct ResponseIdentity {
  Endpoint endpoint = Endpoint::Chat;
  std::string id;            // chatcmpl-…, cmpl-…
  std::int64_t created = 0;  // unix seconds
  std::string model;
  std::string fingerprint;   // equal where answers are bit-identical
  std::string service_tier;  // empty: not told
};

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0;  // true hits of the prefill's prefix cache
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
};

// What one chunk, or the whole answer, says of its choice.
struct ChoiceText {
  std::string_view text;
  std::span<const TextLogprob> logprobs;
  std::uint32_t text_offset = 0;  // of the first log-probability's token in the completion
  std::span<const TokenId> token_ids;
};

struct ResponseOptions {
  bool logprobs = false;
  bool token_ids = false;
  bool include_usage = false;     // other chunks then say "usage":null
  bool continuous_usage = false;  // every chunk carries the usage so far
};

// "stop", "length"; empty for none.
std::string_view finish_name(FinishReason reason);

class ResponseWriter {
 public:
  ResponseWriter(ResponseIdentity identity, ResponseOptions options);

  // Server-sent events, appended to `out`. The first chat chunk has the role; of completions,
  // nothing comes first unless prompt ids are wanted.
  void begin(std::string& out, std::span<const TokenId> prompt_ids) const;
  void chunk(std::string& out, const ChoiceText& choice, const Usage& usage) const;
  // The closing chunk of the choice; `figures_json`: an object for the key "baton", or empty.
  void close(std::string& out,
             const ChoiceText& rest,
             FinishReason reason,
             const Usage& usage,
             std::string_view figures_json) const;
  // Only when usage was asked for: the chunk with empty choices.
  void usage(std::string& out, const Usage& usage) const;
  static void done(std::string& out);
  static void error(std::string& out, const ApiError& error);
  static void comment(std::string& out);

  std::string whole(const ChoiceText& choice,
                    FinishReason reason,
                    const Usage& usage,
                    std::span<const TokenId> prompt_ids,
                    std::string_view figures_json) const;

  const ResponseIdentity& identity() const { return identity_; }

 private:
  bool is_chat() const { return identity_.endpoint == Endpoint::Chat; }
  void append_chunk(std::string& out,
                    const ChoiceText& choice,
                    FinishReason reason,
                    const Usage& usage,
                    std::string_view figures_json) const;
  void append_logprobs(std::string& out, const ChoiceText& choice) const;

  const ResponseIdentity identity_;
  const ResponseOptions options_;
  std::string head_;  // `data: {"id":…,"object":…,"created":…,"model":…`
};

std::string figures_json(const AnswerFigures& figures);
void append_usage(std::string& out, const Usage& usage);

}  // namespace baton::gateway
