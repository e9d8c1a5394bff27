// POST /tokenize and /detokenize, also under /v1: what a prompt or a chat becomes as tokens, and
// tokens as text. In the shapes of vLLM.
//
// Owner: ApiHandler. Thread: `tokenize` and `detokenize` on the exchange's I/O thread; long bodies
// continue on the work pool. Failure: every fault is a reply in the shape of an OpenAI error.
#pragma once

#include <memory>
#include <string>

#include "common/base/random.h"
#include "gateway/http_exchange.h"
#include "gateway/model_lookup.h"
#include "gateway/served_models.h"
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

  void tokenize(const std::shared_ptr<HttpExchange>& exchange);
  void detokenize(const std::shared_ptr<HttpExchange>& exchange);

 private:
  using Work = ApiResult<std::string> (TokenizeApi::*)(const std::string& body) const;
  void answer(const std::shared_ptr<HttpExchange>& exchange, Work work);
  // The body of the reply.
  ApiResult<std::string> tokens_of(const std::string& body) const;
  ApiResult<std::string> text_of(const std::string& body) const;
  // Without a name: the only model served.
  ApiResult<FoundModel> model_for(const std::string& id) const;

  const Deps deps_;
};

}  // namespace baton::gateway
