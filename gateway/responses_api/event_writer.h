// Writes answers of /v1/responses: one response object, or the typed events that build it up. Its
// output is a list of items in the order in which the model wrote them: reasoning, messages, calls
// of functions.
//
// Sequence of events: response.created, response.in_progress; for each item
// response.output_item.added, [response.content_part.added], its deltas, its done event,
// [response.content_part.done], response.output_item.done; then response.completed or
// response.incomplete. Deltas are response.output_text.delta, response.reasoning_text.delta or
// response.function_call_arguments.delta; calls have no content part. response.failed may come at
// any point and ends the stream.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/api/answer_writer.h"
#include "gateway/openai/openai_request.h"
#include "gateway/openai/responses.h"
#include "gateway/tools/answer_part.h"

namespace baton::gateway {

class ResponseEventWriter final : public AnswerWriter {
 public:
  // Called once with the finished response and the turn it makes of a conversation, unless it
  // fails.
  using Keep = std::function<void(const std::string& json, engine::ChatMessage turn)>;

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
  struct Item {
    AnswerPart::Kind kind = AnswerPart::Kind::Content;  // CallBegin: a call
    std::string id;
    std::string call_id;
    std::string name;      // of the function
    std::string text;      // or arguments
    std::string logprobs;  // JSON entries, comma between
  };

  // "event: TYPE\ndata: {"type":…,"sequence_number":…", to be continued and closed by `end_event`.
  void begin_event(std::string& out, std::string_view type);
  static void end_event(std::string& out) { out += "}\n\n"; }
  void append_place(std::string& out) const;  // of the last item

  // All of them take what the answer has become; with `out` they tell it.
  void add(std::string* out, const ChoiceText& choice);
  void add_text(std::string* out,
                AnswerPart::Kind kind,
                std::string_view text,
                std::span<const TextLogprob> logprobs);
  void open(std::string* out, Item item, std::string_view id_prefix);
  void end_item(std::string* out);

  static std::string content_part(const Item& item);
  static std::string item_json(const Item& item, std::string_view status);
  // The response object; `usage` null: not known yet.
  std::string response(std::string_view status, const Usage* usage) const;
  std::string_view end_status() const { return is_incomplete_ ? "incomplete" : "completed"; }
  // As the next request of the conversation has it.
  engine::ChatMessage turn() const;

  const ResponseIdentity identity_;
  const std::string number_;  // that its id ends with
  const Keep keep_;
  const bool logprobs_;
  std::string settings_;  // fields of the response that repeat the request
  std::uint64_t sequence_ = 0;
  bool began_ = false;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item is
  bool is_incomplete_ = false;
  std::string error_;  // JSON, or empty
  std::string figures_;
};

}  // namespace baton::gateway
