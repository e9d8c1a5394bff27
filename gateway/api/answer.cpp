#include "gateway/api/answer.h"

#include <algorithm>
#include <optional>

#include "gateway/api/delivery.h"
#include "gateway/api/replies.h"
#include "gateway/openai/responses.h"

namespace baton::gateway {
namespace {

constexpr std::size_t kLikelyChunk = 512;  // bytes of an event

class ChoiceSink final : public AnswerSink {
 public:
  ChoiceSink(std::shared_ptr<Answer> answer, Delivery& delivery, std::uint32_t choice)
      : answer_(std::move(answer)), delivery_(delivery), choice_(choice) {}
  void on_tokens(TokenEvent event) override {
    delivery_.put(answer_, choice_, Answer::Item(std::move(event)));
  }
  void on_end(AnswerEnd end) override {
    delivery_.put(answer_, choice_, Answer::Item(std::move(end)));
  }

 private:
  const std::shared_ptr<Answer> answer_;
  Delivery& delivery_;
  const std::uint32_t choice_;
};

}  // namespace

Answer::Answer(std::shared_ptr<HttpExchange> exchange,
               const ApiRequest& api,
               AnswerSetup setup,
               std::unique_ptr<AnswerWriter> writer,
               Delivery& delivery)
    : exchange_(std::move(exchange)),
      setup_(std::move(setup)),
      stream_(api.stream),
      delivery_(delivery),
      writer_(std::move(writer)) {
  choices_.reserve(setup_.choices.size());
  for (const AnswerSetup::Choice& choice : setup_.choices) {
    const AnswerSetup::Prompt& prompt = setup_.prompts[choice.prompt];
    choices_.push_back({ChoiceStream(api,
                                     {*setup_.artifacts->tokenizer,
                                      setup_.text,
                                      choice.id,
                                      static_cast<std::uint32_t>(choices_.size()),
                                      choice.min_tokens,
                                      prompt.text,
                                      prompt.ids}),
                        false,
                        0,
                        {}});
  }
}

void Answer::start() {
  const auto weak = weak_from_this();
  exchange_->set_on_gone([weak] {
    if (const auto self = weak.lock()) {
      self->gone();
    }
  });
  if (stream_ && setup_.keepalive > Duration{}) {
    exchange_->set_on_silence(setup_.keepalive, [weak] {
      if (const auto self = weak.lock()) {
        self->keep_alive();
      }
    });
  }
}

std::shared_ptr<AnswerSink> Answer::sink(std::uint32_t choice) {
  return std::make_shared<ChoiceSink>(shared_from_this(), delivery_, choice);
}

void Answer::take(std::uint32_t choice, Item item) {
  if (done_) {
    return;
  }
  if (const auto* event = std::get_if<TokenEvent>(&item)) {
    take_tokens(choice, *event);
  } else {
    take_end(choice, std::move(std::get<AnswerEnd>(item)));
  }
}

// A chunk goes out when there is text to show: ids and log-probabilities of tokens whose text is
// held back go with it.
void Answer::take_tokens(std::uint32_t number, const TokenEvent& event) {
  ChoiceStream& choice = choices_[number].stream;
  if (!choice.is_stopped() && choice.take(event)) {
    setup_.stop(setup_.choices[number].id, setup_.wants_figures);
  }
  if (!stream_ || !choice.has_text()) {
    return;
  }
  std::string out;
  out.reserve(kLikelyChunk);
  begin(number, out);
  writer_->chunk(out, choice.text(), usage());
  choice.clear();
  exchange_->write(out);
}

void Answer::begin_stream() {
  if (exchange_->is_started()) {
    return;
  }
  HttpHeaders headers = api_headers("text/event-stream; charset=utf-8", setup_.request_id);
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");
  exchange_->start_stream(200, std::move(headers));
}

void Answer::begin(std::uint32_t number, std::string& out) {
  if (!std::exchange(choices_[number].began, true)) {
    begin_stream();
    writer_->begin(out, number, prompt_ids(number));
  }
}

const std::vector<TokenId>& Answer::prompt_ids(std::uint32_t number) const {
  return setup_.prompts[setup_.choices[number].prompt].ids;
}

Usage Answer::usage() const {
  Usage total;
  for (const AnswerSetup::Prompt& prompt : setup_.prompts) {
    total.prompt_tokens += prompt.tokens;
  }
  for (const Choice& choice : choices_) {
    total.completion_tokens += choice.stream.completion_tokens();
    total.reasoning_tokens += choice.stream.reasoning_tokens();
  }
  if (ended_ < choices_.size()) {
    return total;
  }
  // What one choice left in the cache for the next was not there before the request.
  std::vector<std::optional<std::uint32_t>> cached(setup_.prompts.size());
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    auto& least = cached[setup_.choices[i].prompt];
    least = std::min(least.value_or(choices_[i].cached_tokens), choices_[i].cached_tokens);
  }
  for (const auto& least : cached) {
    total.cached_tokens += least.value_or(0);
  }
  return total;
}

void Answer::take_end(std::uint32_t number, AnswerEnd end) {
  Choice& choice = choices_[number];
  if (end.error && !choice.stream.is_stopped()) {
    return fail(*end.error);
  }
  choice.stream.end(end.finish);
  choice.cached_tokens = end.figures.cached_tokens;
  if (setup_.wants_figures) {
    choice.figures = figures_json(end.figures);
  }
  const bool is_last = ++ended_ == choices_.size();
  if (!stream_) {
    return is_last ? reply_whole() : void();
  }
  std::string out;
  out.reserve(kLikelyChunk);
  begin(number, out);
  const Usage total = usage();
  writer_->close(out, choice.stream.text(), choice.stream.ending(), total, choice.figures);
  choice.stream.clear();
  if (is_last) {
    done_ = true;
    writer_->finish(out, total);
  }
  exchange_->write(out);
  if (is_last) {
    exchange_->finish();
  }
}

void Answer::reply_whole() {
  done_ = true;
  std::vector<WholeChoice> choices;
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    const ChoiceStream& stream = choices_[i].stream;
    choices.push_back({stream.text(), stream.ending(), prompt_ids(i), stream.prompt_logprobs()});
  }
  reply_json(*exchange_,
             200,
             writer_->whole(choices, usage(), choices_.front().figures),
             setup_.request_id);
}

void Answer::fail(const ApiError& error) {
  done_ = true;
  if (choices_.size() > 1) {
    setup_.cancel("another choice of the answer has failed");
  }
  if (!exchange_->is_started()) {
    return reply_error(*exchange_, error, setup_.request_id);
  }
  std::string out;
  writer_->fail(out, error);
  exchange_->write(out);
  exchange_->finish();
}

void Answer::keep_alive() {
  if (done_) {
    return;
  }
  // From here on the status is 200, whatever comes: a proxy in front would cut a silent connection.
  begin_stream();
  exchange_->write(kSseComment);
}

void Answer::gone() {
  if (!std::exchange(done_, true)) {
    setup_.cancel("client gone");
  }
}

}  // namespace baton::gateway
