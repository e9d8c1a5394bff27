// The endpoints that generate text: from a JSON body to one request for each choice at the tracker,
// and an Answer that waits for their tokens.
//
// Owner: ApiHandler. Thread: `handle` on the exchange's I/O thread; long bodies continue on the
// work pool and come back. Failure: every fault is a reply in the shape of an OpenAI error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/exec/executor.h"
#include "gateway/access/access.h"
#include "gateway/api/answer_writer.h"
#include "gateway/api/delivery.h"
#include "gateway/api/grammar_checker.h"
#include "gateway/api/prompt_cost.h"
#include "gateway/cluster/model_lookup.h"
#include "gateway/cluster/served_models.h"
#include "gateway/http/http_exchange.h"
#include "gateway/openai/openai_request.h"
#include "gateway/requests/request_trace.h"
#include "gateway/requests/request_tracker.h"
#include "gateway/responses_api/response_store.h"
#include "gateway/routing/prompt_chain.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

class GenerateApi {
 public:
  struct Deps {
    Executor& control;
    RequestTracker& tracker;  // on the control strand
    const ModelDirectory& models;
    Delivery& delivery;
    WorkPool& pool;
    RandomSource random;           // from any thread
    std::string configured_model;  // known even before its first node
    Duration keepalive{};          // silence in a stream before a comment
    PromptCost cost;
    ResponseStore& store;
    GrammarChecker& grammars;
    TraceChoice traces;
  };

  explicit GenerateApi(Deps deps) : deps_(std::move(deps)) {}

  void handle(const std::shared_ptr<HttpExchange>& exchange,
              Endpoint endpoint,
              const Caller& caller);

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  // All that is known once the body has been read.
  struct Ready {
    ApiRequest api;
    FoundModel found;
    Tier tier = Tier::Default;
    std::shared_ptr<LimitLease> lease;  // null: nothing is counted
    std::vector<GenerateRequest> choices;
    std::vector<PromptChains> chains;        // of each prompt
    std::string owner;                       // name of the key
    std::vector<engine::ChatMessage> turns;  // that are kept with an answer of /v1/responses
  };
  // On an I/O or a pool thread.
  ApiResult<std::unique_ptr<Ready>> prepare(const std::string& body,
                                            Endpoint endpoint,
                                            const Caller& caller,
                                            std::shared_ptr<LimitLease> lease) const;
  // Takes the turns.
  std::unique_ptr<AnswerWriter> make_writer(Ready& ready) const;
  // Takes what it needs of it.
  void submit(const Exchange& exchange, Ready& ready);

  const Deps deps_;
};

}  // namespace baton::gateway
