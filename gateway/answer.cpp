#include "gateway/answer.h"

#include "gateway/delivery.h"
#include "gateway/replies.h"

namespace baton::gateway {
namespace {

ResponseOptions options_of(const ApiRequest& api) {
  return ResponseOptions{api.sampling.num_logprobs >= 0,
                         api.return_token_ids,
                         api.stream && api.include_usage,
                         api.stream && api.include_usage && api.continuous_usage};
}

}  // namespace

Answer::Answer(std::shared_ptr<HttpExchange> exchange,
               const ApiRequest& api,
               AnswerSetup setup,
               Delivery& delivery)
    : exchange_(std::move(exchange)),
      setup_(std::move(setup)),
      stream_(api.stream),
      logprobs_(api.sampling.num_logprobs >= 0),
      return_token_ids_(api.return_token_ids),
      delivery_(delivery),
      writer_(setup_.identity, options_of(api)),
      detokenizer_(*setup_.artifacts->tokenizer, !api.skip_special_tokens),
      watcher_(api.stop, api.include_stop_text) {}

void Answer::start() {
  last_write_ = exchange_->request().received;
  const auto weak = weak_from_this();
  exchange_->set_on_gone([weak] {
    if (const auto self = weak.lock()) {
      self->gone();
    }
  });
  if (stream_ && setup_.keepalive > Duration{}) {
    exchange_->set_on_tick([weak](TimePoint now) {
      if (const auto self = weak.lock()) {
        self->tick(now);
      }
    });
  }
}

void Answer::on_tokens(TokenEvent event) {
  delivery_.put(shared_from_this(), Item(std::move(event)));
}

void Answer::on_end(AnswerEnd end) {
  delivery_.put(shared_from_this(), Item(std::move(end)));
}

void Answer::take(Item item) {
  if (done_) {
    return;
  }
  if (auto* event = std::get_if<TokenEvent>(&item)) {
    take_tokens(std::move(*event));
  } else {
    take_end(std::move(std::get<AnswerEnd>(item)));
  }
}

void Answer::show(std::string_view text) {
  if (completion_tokens_ <= setup_.min_tokens) {
    visible_ += text;  // a stop string may not end the answer yet
  } else if (watcher_.push(text, visible_)) {
    stopped_ = true;
  }
}

void Answer::add_token(const TokenEvent& event, std::size_t i) {
  const TokenId token = event.tokens[i];
  ++completion_tokens_;
  const bool is_stop_token = event.finish == FinishReason::Stop && i + 1 == event.tokens.size();
  if (return_token_ids_) {
    token_ids_.push_back(token);
  }
  if (is_stop_token) {
    return;
  }
  const engine::Tokenizer& tokenizer = *setup_.artifacts->tokenizer;
  if (logprobs_ && i < event.logprobs.size()) {
    TextLogprob entry{
        std::string(tokenizer.token_bytes(token, true)), event.logprobs[i].logprob, {}};
    if (i < event.top_logprobs.size()) {
      for (const TokenLogprob& top : event.top_logprobs[i]) {
        entry.top.push_back({std::string(tokenizer.token_bytes(top.token, true)), top.logprob});
      }
    }
    entries_.push_back(std::move(entry));
  }
  show(detokenizer_.push(token));
}

void Answer::take_tokens(TokenEvent event) {
  for (std::size_t i = 0; i < event.tokens.size() && !stopped_; ++i) {
    add_token(event, i);
  }
  if (stopped_) {
    setup_.stop(setup_.id, setup_.wants_figures);
  }
  flush_chunk();
}

ChoiceText Answer::choice() const {
  return ChoiceText{visible_, entries_, entries_offset_, token_ids_};
}

Usage Answer::usage(std::uint32_t cached_tokens) const {
  return Usage{setup_.prompt_tokens, completion_tokens_, cached_tokens};
}

// A chunk goes out when there is text to show: ids and log-probabilities of tokens whose text is
// held back go with it.
void Answer::flush_chunk() {
  if (!stream_ || visible_.empty()) {
    return;
  }
  std::string out;
  begin_stream(out);
  writer_.chunk(out, choice(), usage(0));
  for (const TextLogprob& entry : entries_) {
    entries_offset_ += static_cast<std::uint32_t>(entry.bytes.size());
  }
  visible_.clear();
  entries_.clear();
  token_ids_.clear();
  send(out);
}

void Answer::begin_stream(std::string& out) {
  if (!exchange_->is_started()) {
    HttpHeaders headers = api_headers("text/event-stream; charset=utf-8", setup_.request_id);
    headers.emplace_back("cache-control", "no-cache");
    headers.emplace_back("x-accel-buffering", "no");
    exchange_->start_stream(200, std::move(headers));
  }
  if (!std::exchange(began_, true)) {
    writer_.begin(out, setup_.prompt_ids);
  }
}

void Answer::send(std::string_view bytes) {
  last_write_ = std::chrono::steady_clock::now();
  exchange_->write(bytes);
}

void Answer::take_end(AnswerEnd end) {
  if (end.error && !stopped_) {
    return fail(*end.error);
  }
  if (!stopped_) {
    show(detokenizer_.flush());
    if (!stopped_) {
      watcher_.flush(visible_);
    }
  }
  const FinishReason finish = stopped_ ? FinishReason::Stop : end.finish;
  const std::string figures = setup_.wants_figures ? figures_json(end.figures) : std::string();
  const Usage total = usage(end.figures.cached_tokens);
  done_ = true;
  if (!stream_) {
    return reply_json(*exchange_,
                      200,
                      writer_.whole(choice(), finish, total, setup_.prompt_ids, figures),
                      setup_.request_id);
  }
  std::string out;
  begin_stream(out);
  writer_.close(out, choice(), finish, total, figures);
  writer_.usage(out, total);
  ResponseWriter::done(out);
  send(out);
  exchange_->finish();
}

void Answer::fail(const ApiError& error) {
  done_ = true;
  if (!exchange_->is_started()) {
    return reply_error(*exchange_, error, setup_.request_id);
  }
  std::string out;
  ResponseWriter::error(out, error);
  ResponseWriter::done(out);
  send(out);
  exchange_->finish();
}

void Answer::tick(TimePoint now) {
  if (done_ || now - last_write_ < setup_.keepalive) {
    return;
  }
  // From here on the status is 200, whatever comes: a proxy in front would cut a silent connection.
  std::string out;
  begin_stream(out);
  ResponseWriter::comment(out);
  send(out);
}

void Answer::gone() {
  if (!std::exchange(done_, true)) {
    setup_.cancel(setup_.id, "client gone");
  }
}

}  // namespace baton::gateway
