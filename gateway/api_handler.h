// What the public listener serves: the OpenAI endpoints, health, metrics, status and draining.
// Reads requests and hands them on; all waiting happens elsewhere.
//
// Owner: the composition root. Thread: `handle` on any I/O thread; long prompts continue on the
// work pool and come back. Failure: every fault is a reply in the shape of an OpenAI error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/random.h"
#include "common/exec/executor.h"
#include "gateway/access.h"
#include "gateway/delivery.h"
#include "gateway/http_exchange.h"
#include "gateway/openai_request.h"
#include "gateway/prompt_cost.h"
#include "gateway/request_tracker.h"
#include "gateway/served_models.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

struct ApiHandlerDeps {
  Executor& control;
  RequestTracker& tracker;  // on the control strand
  const ModelDirectory& models;
  Delivery& delivery;
  WorkPool& pool;
  const KeyRing& keys;
  RandomSource random;                        // from any thread
  std::function<std::string()> metrics_text;  // any thread
  std::function<std::string()> status_json;   // on the control strand
  // On the control strand; false: no such node.
  std::function<bool(const NodeName&, std::chrono::milliseconds limit)> drain_node;
  std::string configured_model;  // known even before its first node
  Duration keepalive{};
  PromptCost cost{};
  std::size_t inline_bytes = 4096;  // bodies up to this are read on the I/O thread
};

class ApiHandler {
 public:
  explicit ApiHandler(ApiHandlerDeps deps);

  void handle(std::shared_ptr<HttpExchange> exchange);
  // From now on no new generation: readiness off, 503 with Retry-After.
  void drain() { draining_.store(true); }
  bool is_ready() const;

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  void generate(Exchange exchange, Endpoint endpoint, Caller caller);
  // Parses, templates and tokenizes; on an I/O or a pool thread.
  void prepare(const Exchange& exchange,
               Endpoint endpoint,
               const Caller& caller,
               const std::shared_ptr<LimitLease>& lease,
               const std::string& body,
               bool on_pool);
  void submit(const Exchange& exchange,
              const ApiRequest& api,
              const ServedModel& model,
              GenerateRequest request,
              PromptChains chains,
              Tier tier,
              std::shared_ptr<LimitLease> lease);
  void get(const Exchange& exchange, const Caller& caller);
  void list_models(HttpExchange& exchange, const Caller& caller) const;
  void show_model(HttpExchange& exchange, const Caller& caller, const std::string& id) const;
  void status(const Exchange& exchange) const;
  void drain_node(const Exchange& exchange) const;
  std::string new_request_id(const HttpExchange& exchange) const;

  const ApiHandlerDeps deps_;
  std::atomic<bool> draining_{false};
};

}  // namespace baton::gateway
