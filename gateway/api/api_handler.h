// What the public listener serves: the OpenAI endpoints, health, status and draining.
// Reads requests and hands them on; all waiting happens elsewhere.
//
// Owner: the composition root. Thread: `handle` on the exchange's I/O thread. Failure: every fault
// is a reply in the shape of an OpenAI error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "common/exec/executor.h"
#include "gateway/access/access.h"
#include "gateway/api/delivery.h"
#include "gateway/api/generate_api.h"
#include "gateway/api/grammar_checker.h"
#include "gateway/api/prompt_cost.h"
#include "gateway/api/tokenize_api.h"
#include "gateway/cluster/served_models.h"
#include "gateway/http/http_exchange.h"
#include "gateway/requests/request_tracker.h"
#include "gateway/responses_api/response_store.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

struct ApiHandlerDeps {
  Executor& control;
  RequestTracker& tracker;  // on the control strand
  const ModelDirectory& models;
  Delivery& delivery;
  WorkPool& pool;
  const KeyRing& keys;
  RandomSource random;                       // from any thread
  std::function<std::string()> status_json;  // on the control strand
  // On the control strand: one request by its id or its trace's, or with an empty id the last that
  // ended. Empty: not known.
  std::function<std::string(std::string_view id)> requests_json;
  // On the control strand; false: no such node.
  std::function<bool(const NodeName&, std::chrono::milliseconds limit)> drain_node;
  std::string configured_model;  // known even before its first node
  Duration keepalive{};
  ResponseStore& store;
  PromptCost cost{};
  TraceChoice traces{};
};

class ApiHandler {
 public:
  explicit ApiHandler(ApiHandlerDeps deps);

  void handle(std::shared_ptr<HttpExchange> exchange);
  // Before a body is read: who has no key sends it for nothing.
  std::optional<ApiError> check_head(const HttpRequest& head) const;
  // From now on no new generation: readiness off, 503 with Retry-After.
  void drain() { draining_.store(true); }
  bool is_ready() const;

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  void post(const Exchange& exchange, const Caller& caller);
  void get(const Exchange& exchange, const Caller& caller);
  void list_models(HttpExchange& exchange, const Caller& caller) const;
  void show_model(HttpExchange& exchange, const Caller& caller, const std::string& id) const;
  void status(const Exchange& exchange) const;
  void show_requests(const Exchange& exchange, const std::string& id) const;
  void drain_node(const Exchange& exchange) const;
  std::string new_request_id(const HttpExchange& exchange) const;

  const ApiHandlerDeps deps_;
  GrammarChecker grammars_;
  GenerateApi generate_;
  TokenizeApi tokenize_;
  std::atomic<bool> draining_{false};
};

}  // namespace baton::gateway
