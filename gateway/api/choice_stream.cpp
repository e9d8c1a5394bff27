#include "gateway/api/choice_stream.h"

#include <algorithm>
#include <utility>

#include "gateway/api/prompt_logprobs.h"

namespace baton::gateway {

ChoiceStream::ChoiceStream(const ApiRequest& api, const Start& start)
    : tokenizer_(&start.tokenizer),
      detokenizer_(start.tokenizer, !api.skip_special_tokens, start.format.shown),
      watcher_(api.stop, api.include_stop_text),
      index_(start.index),
      min_tokens_(start.min_tokens),
      prompt_text_(start.prompt_text),
      prompt_ids_(start.prompt_ids),
      stop_token_ids_(api.stop_token_ids),
      num_logprobs_(api.sampling.num_logprobs),
      num_prompt_logprobs_(api.prompt_logprobs),
      echoes_(api.echo),
      hides_output_(api.hides_output()),
      wants_token_ids_(api.return_token_ids) {
  if (start.format.is_needed()) {
    answer_ = std::make_unique<AnswerText>(start.format, start.id, start.index);
  }
}

bool ChoiceStream::take(const TokenEvent& event) {
  if (!std::exchange(began_, true)) {
    begin(event);
  }
  for (std::size_t i = 0; i < event.tokens.size() && !stopped_ && !hides_output_; ++i) {
    add_token(event, i);
  }
  return stopped_;
}

void ChoiceStream::begin(const TokenEvent& event) {
  if (num_prompt_logprobs_ >= 0) {
    prompt_logprobs_ =
        prompt_logprobs_json(event, *tokenizer_, static_cast<std::uint32_t>(num_prompt_logprobs_));
  }
  if (!echoes_) {
    return;
  }
  visible_ += prompt_text_;
  if (num_logprobs_ >= 0) {
    entries_ =
        prompt_entries(event, *tokenizer_, prompt_ids_, static_cast<std::uint32_t>(num_logprobs_));
    if (!prompt_text_.starts_with(entries_.front().bytes)) {
      entries_.front().bytes.clear();  // a start token that the tokenizer has added
    }
  }
}

void ChoiceStream::add_token(const TokenEvent& event, std::size_t i) {
  const TokenId token = event.tokens[i];
  ++completion_tokens_;
  const bool is_stop_token = event.finish == FinishReason::Stop && i + 1 == event.tokens.size();
  if (wants_token_ids_) {
    token_ids_.push_back(token);
  }
  if (is_stop_token) {
    if (std::ranges::find(stop_token_ids_, token) != stop_token_ids_.end()) {
      stop_token_ = token;
    }
    return;
  }
  if (num_logprobs_ >= 0 && i < event.logprobs.size()) {
    TextLogprob entry{
        std::string(tokenizer_->token_bytes(token, true)), event.logprobs[i].logprob, {}, true};
    if (i < event.top_logprobs.size()) {
      for (const TokenLogprob& top : event.top_logprobs[i]) {
        entry.top.push_back({std::string(tokenizer_->token_bytes(top.token, true)), top.logprob});
      }
    }
    entries_.push_back(std::move(entry));
  }
  const bool was_reasoning = answer_ != nullptr && answer_->is_reasoning();
  show(detokenizer_.push(token));
  if (was_reasoning || (answer_ != nullptr && answer_->is_reasoning())) {
    ++reasoning_tokens_;
  }
}

void ChoiceStream::show(std::string_view text) {
  if (completion_tokens_ <= min_tokens_) {
    visible_ += text;  // a stop string may not end the answer yet
  } else if (watcher_.push(text, visible_)) {
    stopped_ = true;
  }
  sort();
}

void ChoiceStream::sort() {
  if (answer_ == nullptr) {
    return;
  }
  answer_->push(visible_);
  visible_.clear();
  stopped_ = stopped_ || answer_->is_finished();
}

void ChoiceStream::end(FinishReason finish) {
  if (!stopped_) {
    show(detokenizer_.flush());
    if (!stopped_) {
      watcher_.flush(visible_);
      sort();
    }
  }
  if (answer_ != nullptr) {
    answer_->flush(stopped_ || finish == FinishReason::Length);
  }
  finish_ = stopped_ ? FinishReason::Stop : hides_output_ ? FinishReason::Length : finish;
}

ChoiceText ChoiceStream::text() const {
  ChoiceText text{visible_, entries_, entries_offset_, token_ids_, index_};
  if (answer_ != nullptr) {
    text.parts = &answer_->parts();
  }
  return text;
}

void ChoiceStream::clear() {
  for (const TextLogprob& entry : entries_) {
    entries_offset_ += static_cast<std::uint32_t>(entry.bytes.size());
  }
  visible_.clear();
  if (answer_ != nullptr) {
    answer_->clear();
  }
  entries_.clear();
  token_ids_.clear();
}

}  // namespace baton::gateway
