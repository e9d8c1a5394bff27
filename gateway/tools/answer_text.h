// From the text of one choice to what its client gets: reasoning, content and calls of tools. A
// choice that needs neither has none of this.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "gateway/tools/answer_part.h"
#include "gateway/tools/call_parser.h"
#include "gateway/tools/reasoning_splitter.h"
#include "gateway/tools/tool_format.h"

namespace baton::gateway {

// Of a request, for each of its choices.
struct AnswerTextOptions {
  std::optional<ToolFormat> tools;  // none: nothing is a call
  CallOptions calls;
  bool reasoning = false;
  bool reasoning_open = false;  // the prompt ends inside of reasoning
  bool finish_as_calls = true;  // calls make the finish reason "tool_calls"
  std::vector<TokenId> shown;   // special tokens whose text must be pushed
  bool is_needed() const { return tools.has_value() || reasoning; }
};

class AnswerText {
 public:
  // Ids of calls are made from `request` and `choice`.
  AnswerText(const AnswerTextOptions& options, RequestId request, std::uint32_t choice);

  void push(std::string_view text);
  // At the end of the text. `is_cut`: the model would have written more.
  void flush(bool is_cut);

  // Since the last clear().
  const AnswerParts& parts() const { return parts_; }
  void clear() { parts_.clear(); }

  bool is_reasoning() const { return splitter_ && splitter_->is_inside(); }
  // Whether a finish reason "stop" is "tool_calls".
  bool has_calls() const { return finish_as_calls_ && parser_ && parser_->has_calls(); }
  // The one call that was wanted is there: the answer may end.
  bool is_finished() const { return parser_ && parser_->is_finished(); }

 private:
  void push_content(std::string_view text);
  void name_calls();

  const bool finish_as_calls_;
  const bool short_ids_;  // the model's template takes ids of nine characters only
  const RequestId request_;
  const std::uint32_t choice_;
  std::optional<ReasoningSplitter> splitter_;
  std::optional<CallParser> parser_;
  AnswerParts parts_;
};

// Mistral's templates refuse ids of another length than nine: the same id for the same text.
std::string short_call_id(std::string_view id);

}  // namespace baton::gateway
