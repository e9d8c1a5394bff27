// Writes the replies of the OpenAI API as text: chunks of a stream from one template a request, and
// whole answers. JSON is written, never built as a tree.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gateway/api/answer_writer.h"
#include "gateway/openai/openai_request.h"
#include "gateway/requests/answer_sink.h"
#include "gateway/tools/answer_part.h"

namespace baton::gateway {

struct ResponseIdentity {
  Endpoint endpoint = Endpoint::Chat;
  std::string id;            // chatcmpl-…, cmpl-…
  std::int64_t created = 0;  // unix seconds
  std::string model;
  std::string fingerprint;   // equal where answers are bit-identical
  std::string service_tier;  // empty: not told
};

struct ResponseOptions {
  bool logprobs = false;
  bool token_ids = false;
  bool include_usage = false;     // other chunks then say "usage":null
  bool continuous_usage = false;  // every chunk carries the usage so far
};

// "stop", "length"; empty for none.
std::string_view finish_name(FinishReason reason);

class ResponseWriter final : public AnswerWriter {
 public:
  ResponseWriter(ResponseIdentity identity, ResponseOptions options);

  // A choice's first chat chunk has the role; of completions, nothing comes first unless prompt ids
  // are wanted.
  void begin(std::string& out, std::uint32_t index, std::span<const TokenId> prompt_ids) override;
  void chunk(std::string& out, const ChoiceText& choice, const Usage& usage) override;
  void close(std::string& out,
             const ChoiceText& rest,
             const ChoiceEnd& end,
             const Usage& usage,
             std::string_view figures_json) override;
  // The chunk with empty choices, when usage was asked for, and [DONE].
  void finish(std::string& out, const Usage& usage) override;
  void fail(std::string& out, const ApiError& error) override;

  std::string whole(std::span<const WholeChoice> choices,
                    const Usage& usage,
                    std::string_view figures_json) override;

 private:
  bool is_chat() const { return identity_.endpoint == Endpoint::Chat; }
  void begin_choice(std::string& out, std::uint32_t index) const;
  void append_chunk(std::string& out,
                    const ChoiceText& choice,
                    const AnswerPart* part,
                    const ChoiceEnd& end,
                    const Usage& usage,
                    std::string_view figures_json) const;
  void append_logprobs(std::string& out, const ChoiceText& choice) const;
  void append_whole(std::string& out, const WholeChoice& choice) const;

  const ResponseIdentity identity_;
  const ResponseOptions options_;
  std::string head_;  // `data: {"id":…,"object":…,"created":…,"model":…`
};

// What JSON has instead of minus infinity is -9999.
void append_logprob(std::string& out, float logprob);
// A token may be a part of a character: its text then shows U+FFFD and `bytes` tells the truth.
std::string printable_token(std::string_view bytes);

// {"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]} of each, with commas between.
void append_logprob_entries(std::string& out, std::span<const TextLogprob> logprobs);

std::string figures_json(const AnswerFigures& figures);
void append_usage(std::string& out, const Usage& usage);

}  // namespace baton::gateway
