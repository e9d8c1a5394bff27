// One generation's way back to its client: turns tokens into text, watches stop strings, writes the
// stream or the whole reply, and tells the tracker when the client leaves or a stop string ends the
// answer.
//
// Owner: the tracker, as its sink, until the end. Thread: `on_tokens` and `on_end` on the
// control strand; everything else on the exchange's I/O thread. Failure: errors before the
// first byte become the HTTP status, later ones an event in the stream.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "gateway/answer_sink.h"
#include "gateway/http_exchange.h"
#include "gateway/openai_request.h"
#include "gateway/responses.h"
#include "gateway/served_models.h"
#include "gateway/stop_watcher.h"

namespace baton::gateway {

class Delivery;

struct AnswerSetup {
  RequestId id{};
  std::string request_id;  // of the x-request-id header
  ResponseIdentity identity;
  std::shared_ptr<const ModelArtifacts> artifacts;
  std::vector<TokenId> prompt_ids;  // only when they are to be returned
  std::uint32_t prompt_tokens = 0;
  std::uint32_t min_tokens = 0;
  bool wants_figures = false;
  Duration keepalive{};                                       // silence before a comment
  std::function<void(RequestId, const std::string&)> cancel;  // any thread
  std::function<void(RequestId, bool want_figures)> stop;     // any thread
};

class Answer final : public AnswerSink, public std::enable_shared_from_this<Answer> {
 public:
  using Item = std::variant<TokenEvent, AnswerEnd>;

  Answer(std::shared_ptr<HttpExchange> exchange,
         const ApiRequest& api,
         AnswerSetup setup,
         Delivery& delivery);

  // Watches the client. On the I/O thread, before the request is submitted.
  void start();

  void on_tokens(TokenEvent event) override;
  void on_end(AnswerEnd end) override;

  // From the delivery, on the I/O thread.
  void take(Item item);
  HttpExchange& exchange() { return *exchange_; }

 private:
  void take_tokens(TokenEvent event);
  void take_end(AnswerEnd end);
  void add_token(const TokenEvent& event, std::size_t i);
  void show(std::string_view text);  // through the stop watcher into visible_
  void flush_chunk();
  void fail(const ApiError& error);
  void begin_stream(std::string& out);
  void send(std::string_view bytes);
  ChoiceText choice() const;
  Usage usage(std::uint32_t cached_tokens) const;
  void tick(TimePoint now);
  void gone();

  const std::shared_ptr<HttpExchange> exchange_;
  const AnswerSetup setup_;
  const bool stream_;
  const bool logprobs_;
  const bool return_token_ids_;
  Delivery& delivery_;

  ResponseWriter writer_;
  engine::Detokenizer detokenizer_;
  StopWatcher watcher_;
  // Gathered for the next chunk, or for the whole reply.
  std::string visible_;
  std::vector<TextLogprob> entries_;
  std::vector<TokenId> token_ids_;
  std::uint32_t entries_offset_ = 0;  // text before entries_, for text_offset
  std::uint32_t completion_tokens_ = 0;
  bool stopped_ = false;  // by a stop string
  bool done_ = false;     // the reply is finished or the client gone
  bool began_ = false;    // the stream's first chunk is out
  TimePoint last_write_;
};

}  // namespace baton::gateway
