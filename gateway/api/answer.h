// The way of an answer back to its client: gathers what the nodes send for each choice of one HTTP
// request, writes the stream or the whole reply once, and tells the tracker when the client leaves
// or a stop string ends a choice.
//
// Sequence of events: start, then for each choice on_tokens* -> on_end of its sink. The reply ends
// when every choice has ended; one that fails ends all.
//
// Owner: its sinks, which the tracker holds until the end of their choices. Thread: sinks on the
// control strand; everything else on the exchange's I/O thread. Failure: errors before the first
// byte become the HTTP status, later ones an event in the stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gateway/api/answer_writer.h"
#include "gateway/api/choice_stream.h"
#include "gateway/cluster/served_models.h"
#include "gateway/http/http_exchange.h"
#include "gateway/openai/openai_request.h"
#include "gateway/requests/answer_sink.h"

namespace baton::gateway {

class Delivery;

struct AnswerSetup {
  struct Prompt {
    std::uint32_t tokens = 0;
    std::vector<TokenId> ids;  // only when they are to be returned, or echoed
    std::string text;          // only when it is echoed
  };
  struct Choice {
    RequestId id{};
    std::uint32_t prompt = 0;  // number of its prompt
    std::uint32_t min_tokens = 0;
  };
  std::string request_id;  // of the x-request-id header
  std::shared_ptr<const ModelArtifacts> artifacts;
  std::vector<Prompt> prompts;
  AnswerTextOptions text;
  std::vector<Choice> choices;  // in the order of their index in the reply
  bool wants_figures = false;
  Duration keepalive{};                                    // silence before a comment
  std::function<void(const std::string& reason)> cancel;   // every choice; any thread
  std::function<void(RequestId, bool want_figures)> stop;  // any thread
};

class Answer final : public std::enable_shared_from_this<Answer> {
 public:
  using Item = std::variant<TokenEvent, AnswerEnd>;

  Answer(std::shared_ptr<HttpExchange> exchange,
         const ApiRequest& api,
         AnswerSetup setup,
         std::unique_ptr<AnswerWriter> writer,
         Delivery& delivery);

  // Watches the client. On the I/O thread, before a request is submitted.
  void start();
  // Where the tracker hands the tokens of one choice.
  std::shared_ptr<AnswerSink> sink(std::uint32_t choice);

  // From the delivery, on the I/O thread.
  void take(std::uint32_t choice, Item item);
  HttpExchange& exchange() { return *exchange_; }

 private:
  struct Choice {
    ChoiceStream stream;
    bool began = false;  // its first chunk is out
    std::uint32_t cached_tokens = 0;
    std::string figures;  // JSON, when asked for
  };

  void take_tokens(std::uint32_t number, const TokenEvent& event);
  void take_end(std::uint32_t number, AnswerEnd end);
  void reply_whole();
  void fail(const ApiError& error);
  // Head of the stream and the first chunk of the choice, unless they are out.
  void begin_stream();
  void begin(std::uint32_t number, std::string& out);
  const std::vector<TokenId>& prompt_ids(std::uint32_t number) const;
  // So far; cached tokens are known when all choices have ended.
  Usage usage() const;
  void keep_alive();
  void gone();

  const std::shared_ptr<HttpExchange> exchange_;
  const AnswerSetup setup_;
  const bool stream_;
  Delivery& delivery_;
  const std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;  // beside setup_.choices
  std::size_t ended_ = 0;        // choices
  bool done_ = false;            // the reply is finished or the client gone
};

}  // namespace baton::gateway
