// One choice of an answer on its way from tokens to text: detokenizes, watches stop strings, and
// keeps what the next chunk, or the whole reply, says of the choice.
//
// Owner: its Answer. Thread: the exchange's I/O thread. Failure: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/types/token_event.h"
#include "engine/tokenizer/tokenizer.h"
#include "gateway/api/answer_writer.h"
#include "gateway/openai/openai_request.h"
#include "gateway/openai/stop_watcher.h"
#include "gateway/tools/answer_text.h"

namespace baton::gateway {

class ChoiceStream {
 public:
  // What a choice begins with. `tokenizer`, `format`, `prompt_text` and `prompt_ids` must outlive
  // it.
  struct Start {
    const engine::Tokenizer& tokenizer;
    const AnswerTextOptions& format;
    RequestId id{};
    std::uint32_t index = 0;  // in the reply
    std::uint32_t min_tokens = 0;
    std::string_view prompt_text;         // with echo: comes before what is generated
    std::span<const TokenId> prompt_ids;  // with echo
  };
  ChoiceStream(const ApiRequest& api, const Start& start);

  // True when a stop string, or the one call that was wanted, ends the choice with this event;
  // later events are not to be given.
  bool take(const TokenEvent& event);
  // The text held back becomes visible; `finish` counts unless a stop string came first.
  void end(FinishReason finish);

  // What is visible and not cleared yet. Borrows from the choice.
  ChoiceText text() const;
  bool has_text() const {
    return !visible_.empty() || (answer_ != nullptr && !answer_->parts().empty());
  }
  // What `text` says has been written.
  void clear();

  bool is_stopped() const { return stopped_; }
  // Borrows from the choice.
  ChoiceEnd ending() const {
    return {finish_, watcher_.matched(), stop_token_, answer_ != nullptr && answer_->has_calls()};
  }
  const std::string& prompt_logprobs() const { return prompt_logprobs_; }  // JSON, or empty
  std::uint32_t completion_tokens() const { return completion_tokens_; }
  std::uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  std::uint32_t index() const { return index_; }

 private:
  // The prompt's part of the first event.
  void begin(const TokenEvent& event);
  void add_token(const TokenEvent& event, std::size_t i);
  void show(std::string_view text);  // through the stop watcher into visible_
  void sort();                       // from visible_ into the answer's parts, if it has such

  const engine::Tokenizer* tokenizer_;
  engine::Detokenizer detokenizer_;
  StopWatcher watcher_;
  std::uint32_t index_;
  std::uint32_t min_tokens_;
  std::string_view prompt_text_;
  std::span<const TokenId> prompt_ids_;
  std::vector<TokenId> stop_token_ids_;  // of the client
  std::int32_t num_logprobs_;
  std::int32_t num_prompt_logprobs_;
  bool echoes_;
  bool hides_output_;
  bool wants_token_ids_;
  std::unique_ptr<AnswerText> answer_;  // null: all text is content
  std::string visible_;
  std::vector<TextLogprob> entries_;
  std::vector<TokenId> token_ids_;
  std::uint32_t entries_offset_ = 0;  // text before entries_, for text_offset
  std::uint32_t completion_tokens_ = 0;
  std::uint32_t reasoning_tokens_ = 0;
  std::string prompt_logprobs_;
  bool began_ = false;
  bool stopped_ = false;  // by a stop string or a call
  std::optional<TokenId> stop_token_;
  FinishReason finish_ = FinishReason::None;
};

}  // namespace baton::gateway
