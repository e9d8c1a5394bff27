#include "gateway/choice_stream.h"

#include <utility>

namespace baton::gateway {

ChoiceStream::ChoiceStream(const ApiRequest& api,
                           const engine::Tokenizer& tokenizer,
                           const AnswerTextOptions& text,
                           Place place)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer, !api.skip_special_tokens, text.shown),
      watcher_(api.stop, api.include_stop_text),
      index_(place.index),
      min_tokens_(place.min_tokens),
      wants_logprobs_(api.sampling.num_logprobs >= 0),
      wants_token_ids_(api.return_token_ids) {
  if (text.is_needed()) {
    answer_ = std::make_unique<AnswerText>(text, place.id, place.index);
  }
}

bool ChoiceStream::take(const TokenEvent& event) {
  for (std::size_t i = 0; i < event.tokens.size() && !stopped_; ++i) {
    add_token(event, i);
  }
  return stopped_;
}

void ChoiceStream::add_token(const TokenEvent& event, std::size_t i) {
  const TokenId token = event.tokens[i];
  ++completion_tokens_;
  const bool is_stop_token = event.finish == FinishReason::Stop && i + 1 == event.tokens.size();
  if (wants_token_ids_) {
    token_ids_.push_back(token);
  }
  if (is_stop_token) {
    return;
  }
  if (wants_logprobs_ && i < event.logprobs.size()) {
    TextLogprob entry{
        std::string(tokenizer_->token_bytes(token, true)), event.logprobs[i].logprob, {}};
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
    answer_->flush();
  }
  finish_ = stopped_ ? FinishReason::Stop : finish;
}

ChoiceText ChoiceStream::text() const {
  ChoiceText text{visible_, entries_, entries_offset_, token_ids_, index_};
  if (answer_ != nullptr) {
    text.parts = &answer_->parts();
    text.has_calls = answer_->has_calls();
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
