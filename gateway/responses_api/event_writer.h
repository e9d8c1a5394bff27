// Writes answers of /v1/responses: one response object, or the typed events that build it up.
//
// Sequence of events: response.created, response.in_progress, response.output_item.added,
// response.content_part.added, response.output_text.delta*, response.output_text.done,
// response.content_part.done, response.output_item.done, then response.completed or
// response.incomplete; response.failed may come at any point and ends the stream.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "gateway/answer_writer.h"
#include "gateway/openai_request.h"
#include "gateway/responses.h"

namespace baton::gateway {

class ResponseEventWriter final : public AnswerWriter {
 public:
  // Called once with the finished response and its text, unless it fails.
  using Keep = std::function<void(const std::string& json, const std::string& text)>;

  ResponseEventWriter(ResponseIdentity identity, const ApiRequest& api, Keep keep);

  void begin(std::string& out, std::uint32_t index, std::span<const TokenId> prompt_ids) override;
  void chunk(std::string& out, const ChoiceText& choice, const Usage& usage) override;
  void close(std::string& out,
             const ChoiceText& rest,
             const ChoiceEnd& end,
             const Usage& usage,
             std::string_view figures_json) override;
  void finish(std::string& out, const Usage& usage) override;
  void fail(std::string& out, const ApiError& error) override;
  std::string whole(std::span<const WholeChoice> choices,
                    const Usage& usage,
                    std::string_view figures_json) override;

 private:
  // "event: TYPE\ndata: {"type":…,"sequence_number":…", to be continued and closed by `end_event`.
  void begin_event(std::string& out, std::string_view type);
  static void end_event(std::string& out) { out += "}\n\n"; }
  void append_place(std::string& out) const;  // item_id, output_index, content_index
  void add(const ChoiceText& choice);         // to what has been said so far
  std::string part() const;                   // the output_text so far
  std::string item(std::string_view status) const;
  // The response object; `usage` null: not known yet.
  std::string response(std::string_view status, const Usage* usage) const;

  const ResponseIdentity identity_;
  const std::string item_id_;
  const Keep keep_;
  const bool logprobs_;
  std::string settings_;  // fields of the response that repeat the request
  std::uint64_t sequence_ = 0;
  bool began_ = false;
  std::string text_;
  std::string text_logprobs_;  // JSON entries, comma between
  bool is_incomplete_ = false;
  std::string error_;  // JSON, or empty
  std::string figures_;
};

}  // namespace baton::gateway
