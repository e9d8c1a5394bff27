// POST /tokenize and /detokenize, also under /v1: what a prompt or a chat becomes as tokens, and
// tokens as text. In the shapes of vLLM.
//
// Owner: ApiHandler. Thread: `tokenize` and `detokenize` on the exchange's I/O thread; long bodies
// continue on the work pool. Failure: every fault is a reply in the shape of an OpenAI error.
#pragma once

#include <memory>
#include <string>

#include "common/base/random.h"
#include "gateway/access/access.h"
#include "gateway/cluster/model_lookup.h"
#include "gateway/cluster/served_models.h"
#include "gateway/http/http_exchange.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

class TokenizeApi {
 public:
  struct Deps {
    const ModelDirectory& models;
    WorkPool& pool;
    RandomSource random;  // from any thread
    std::string configured_model;
  };

  explicit TokenizeApi(Deps deps) : deps_(std::move(deps)) {}

  void tokenize(const std::shared_ptr<HttpExchange>& exchange, const Caller& caller);
  void detokenize(const std::shared_ptr<HttpExchange>& exchange, const Caller& caller);

 private:
  using Work = ApiResult<std::string> (TokenizeApi::*)(const std::string& body,
                                                       const Caller& caller) const;
  void answer(const std::shared_ptr<HttpExchange>& exchange, const Caller& caller, Work work);
  // The body of the reply.
  ApiResult<std::string> tokens_of(const std::string& body, const Caller& caller) const;
  ApiResult<std::string> text_of(const std::string& body, const Caller& caller) const;
  // Without a name: the only model served.
  ApiResult<FoundModel> model_for(const std::string& id, const Caller& caller) const;

  const Deps deps_;
};

}  // namespace baton::gateway
