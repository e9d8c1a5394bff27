#include "gateway/api_handler.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>

#include "gateway/answer.h"
#include "gateway/json_text.h"
#include "gateway/prompt_builder.h"
#include "gateway/replies.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kNodesPath = "/v1/baton/nodes/";
constexpr std::string_view kDrainPath = "/drain";
constexpr std::uint64_t kDrainLimitMs = 60'000;
constexpr std::uint64_t kLongestDrainMs = 86'400'000;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// /v1/baton/nodes/{name}/drain
bool is_drain_path(std::string_view path) {
  return path.starts_with(kNodesPath) && path.ends_with(kDrainPath) &&
         path.size() > kNodesPath.size() + kDrainPath.size();
}

// Of the query; nothing when it is no number in range.
std::optional<std::chrono::milliseconds> drain_limit(std::string_view query) {
  constexpr std::string_view kKey = "limit_ms=";
  const std::size_t at = query.find(kKey);
  if (at == std::string_view::npos) {
    return std::chrono::milliseconds(kDrainLimitMs);
  }
  std::string_view text = query.substr(at + kKey.size());
  text = text.substr(0, text.find('&'));
  std::uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value > kLongestDrainMs) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(value);
}

// What a path allows; empty: no such path.
std::string_view methods_of(const std::string& path) {
  if (path == "/v1/chat/completions" || path == "/v1/completions") {
    return "POST, OPTIONS";
  }
  if (is_drain_path(path)) {
    return "POST, OPTIONS";
  }
  for (const std::string_view known :
       {"/health", "/livez", "/readyz", "/metrics", "/baton/status", "/v1/models"}) {
    if (path == known) {
      return "GET, HEAD, OPTIONS";
    }
  }
  return path.starts_with("/v1/models/") && path.size() > kModelsPath.size() + 1
             ? "GET, HEAD, OPTIONS"
             : "";
}

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return type.empty() || type.find("json") != std::string_view::npos;
}

void append_model(std::string& out, const ServedModel& model) {
  out += "{\"id\":";
  append_json_string(out, model.id);
  fmt::format_to(
      std::back_inserter(out),
      ",\"object\":\"model\",\"created\":{},\"owned_by\":\"baton\",\"max_model_len\":{}}}",
      model.created,
      model.max_tokens);
}

ApiError unavailable(std::string message) {
  return to_api_error(Error{ErrorCode::Unavailable, std::move(message)});
}

}  // namespace

ApiHandler::ApiHandler(ApiHandlerDeps deps) : deps_(std::move(deps)) {}

std::string ApiHandler::new_request_id(const HttpExchange& exchange) const {
  return request_id_for(exchange.request(), deps_.random());
}

bool ApiHandler::is_ready() const {
  if (draining_.load()) {
    return false;
  }
  const auto models = deps_.models.get();
  for (const auto& [id, model] : *models) {
    if (model.is_ready()) {
      return true;
    }
  }
  return false;
}

void ApiHandler::handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const std::string_view allowed = methods_of(request.path);
  if (request.method == "OPTIONS") {
    return reply_preflight(*exchange,
                           std::string(allowed.empty() ? "GET, POST, OPTIONS" : allowed));
  }
  if (allowed.empty()) {
    return reply_error(
        *exchange, no_such_path(request.method, request.path), new_request_id(*exchange));
  }
  const bool get_like = request.method == "GET" || request.method == "HEAD";
  if (allowed.starts_with("GET") ? !get_like : request.method != "POST") {
    HttpHeaders headers = api_headers("application/json", new_request_id(*exchange));
    headers.emplace_back("allow", std::string(allowed));
    const ApiError error = method_not_allowed(request.method, request.path, allowed);
    return exchange->respond(error.status, std::move(headers), error_body(error));
  }
  const auto caller = authenticate(deps_.keys, request, access_of(request.path));
  if (!caller) {
    return reply_error(*exchange, caller.error(), new_request_id(*exchange));
  }
  if (get_like) {
    return get(exchange, *caller);
  }
  if (is_drain_path(request.path)) {
    return drain_node(exchange);
  }
  const bool is_chat = request.path == "/v1/chat/completions";
  generate(std::move(exchange), is_chat ? Endpoint::Chat : Endpoint::Completions, *caller);
}

// ---- generation

void ApiHandler::generate(Exchange exchange, Endpoint endpoint, Caller caller) {
  if (draining_.load()) {
    return reply_error(
        *exchange, unavailable("The server is shutting down."), new_request_id(*exchange));
  }
  if (!is_json(exchange->request().header("content-type"))) {
    ApiError error = bad_request("unsupported_media_type",
                                 "",
                                 "The body must be sent with 'Content-Type: application/json'.");
    error.status = 415;
    return reply_error(*exchange, error, new_request_id(*exchange));
  }
  auto lease = caller.begin();
  if (!lease) {
    exchange->add_headers(caller.limit_headers());
    return reply_error(*exchange, lease.error(), new_request_id(*exchange));
  }
  std::string body = exchange->take_body();
  if (body.size() <= deps_.inline_bytes) {
    return prepare(exchange, endpoint, caller, *lease, body, false);
  }
  deps_.pool.run(
      [this,
       exchange,
       endpoint,
       caller = std::move(caller),
       lease = std::move(*lease),
       body = std::move(body)] { prepare(exchange, endpoint, caller, lease, body, true); });
}

void ApiHandler::prepare(const Exchange& exchange,
                         Endpoint endpoint,
                         const Caller& caller,
                         const std::shared_ptr<LimitLease>& lease,
                         const std::string& body,
                         bool on_pool) {
  // What touches the exchange must run on its own thread.
  const auto back = [&](Task task) {
    if (on_pool) {
      exchange->post(std::move(task));
    } else {
      task();
    }
  };
  const auto refuse = [&](ApiError error) {
    back([this, exchange, headers = caller.limit_headers(), error = std::move(error)] {
      exchange->add_headers(headers);
      reply_error(*exchange, error, new_request_id(*exchange));
    });
  };
  auto api = [&] {
    const CpuTimer timer(deps_.cost.parse, body.size());
    return parse_api_request(endpoint, body);
  }();
  if (!api) {
    return refuse(std::move(api).error());
  }
  if (!caller.may_use_model(api->model)) {
    return refuse(model_not_found(api->model));
  }
  const auto tier = caller.tier(api->service_tier);
  if (!tier) {
    return refuse(tier.error());
  }
  const auto models = deps_.models.get();
  const auto found = models->find(api->model);
  if (found == models->end()) {
    return refuse(api->model == deps_.configured_model
                      ? unavailable("No node serves this model yet.")
                      : model_not_found(api->model));
  }
  const ServedModel& model = found->second;
  if (model.artifacts == nullptr) {
    return refuse(unavailable("No node serves this model yet."));
  }
  // Whether a pair is there, or worth waiting for, is the tracker's to say.
  auto request =
      build_request(*api, model, RequestId{deps_.random()}, deps_.random(), unix_seconds());
  if (!request) {
    return refuse(std::move(request).error());
  }
  if (lease != nullptr) {
    const auto prompt = request->prompt.size();
    if (const auto refusal = lease->reserve(prompt, prompt + request->max_tokens)) {
      return refuse(to_api_error(*refusal));
    }
  }
  PromptChains chains = hash_prompt(request->prompt, model.block_sizes);
  back([this,
        exchange,
        models,
        &model,
        tier = *tier,
        lease,
        api = std::move(*api),
        chains = std::move(chains),
        request = std::move(*request)]() mutable {
    submit(exchange, api, model, std::move(request), std::move(chains), tier, std::move(lease));
  });
}

void ApiHandler::submit(const Exchange& exchange,
                        const ApiRequest& api,
                        const ServedModel& model,
                        GenerateRequest request,
                        PromptChains chains,
                        Tier tier,
                        std::shared_ptr<LimitLease> lease) {
  const HttpRequest& http = exchange->request();
  if (lease != nullptr) {
    exchange->add_headers(lease->headers());
  }
  AnswerSetup setup;
  setup.id = request.id;
  setup.request_id = request_id_for(http, request.id.value);
  setup.identity = ResponseIdentity{
      api.endpoint,
      fmt::format(
          "{}-{:016x}", api.endpoint == Endpoint::Chat ? "chatcmpl" : "cmpl", request.id.value),
      unix_seconds(),
      model.id,
      model.fingerprint,
      api.names_tier ? std::string(to_string(tier)) : std::string()};
  setup.artifacts = model.artifacts;
  setup.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  setup.min_tokens = request.min_tokens;
  if (api.return_token_ids) {
    setup.prompt_ids = request.prompt;
  }
  setup.wants_figures = http.header("x-baton-figures") == "1";
  setup.keepalive = deps_.keepalive;
  setup.cancel = [this](RequestId id, const std::string& reason) {
    deps_.control.post([this, id, reason] { deps_.tracker.cancel(id, reason); });
  };
  setup.stop = [this](RequestId id, bool want_figures) {
    deps_.control.post([this, id, want_figures] { deps_.tracker.stop(id, want_figures); });
  };
  auto answer = std::make_shared<Answer>(exchange, api, std::move(setup), deps_.delivery);
  answer->start();
  std::shared_ptr<AnswerSink> sink = std::move(answer);
  if (lease != nullptr) {
    const auto prompt = request.prompt.size();
    sink = std::make_shared<MeteredSink>(std::move(sink), std::move(lease), prompt);
  }
  Submission submission{std::move(request), http.received, std::move(sink), std::move(chains)};
  submission.tier = tier;
  deps_.control.post([this, submission = std::move(submission)]() mutable {
    deps_.tracker.submit(std::move(submission));
  });
}

// ---- the rest

void ApiHandler::get(const Exchange& exchange, const Caller& caller) {
  const std::string& path = exchange->request().path;
  const std::string id = new_request_id(*exchange);
  if (path == kModelsPath) {
    return list_models(*exchange, caller);
  }
  if (path.starts_with(kModelsPath)) {
    return show_model(*exchange, caller, path.substr(kModelsPath.size() + 1));
  }
  if (path == "/livez") {
    return reply_json(*exchange, 200, R"({"status":"alive"})", id);
  }
  if (path == "/metrics") {
    return reply_text(*exchange, 200, deps_.metrics_text(), "text/plain; version=0.0.4", id);
  }
  if (path == "/baton/status") {
    return status(exchange);
  }
  if (is_ready()) {
    return reply_json(*exchange, 200, R"({"status":"ready"})", id);
  }
  reply_error(*exchange,
              unavailable(draining_.load() ? "The server is shutting down."
                                           : "No pair of prefill and decode nodes is ready."),
              id);
}

void ApiHandler::list_models(HttpExchange& exchange, const Caller& caller) const {
  const auto models = deps_.models.get();
  std::string body = "{\"object\":\"list\",\"data\":[";
  bool first = true;
  for (const auto& [id, model] : *models) {
    if (model.nodes > 0 && caller.may_use_model(id)) {
      body += first ? "" : ",";
      append_model(body, model);
      first = false;
    }
  }
  body += "]}";
  reply_json(exchange, 200, std::move(body), new_request_id(exchange));
}

void ApiHandler::show_model(HttpExchange& exchange,
                            const Caller& caller,
                            const std::string& id) const {
  const auto models = deps_.models.get();
  const auto found = models->find(id);
  if (found == models->end() || found->second.nodes == 0 || !caller.may_use_model(id)) {
    return reply_error(exchange, model_not_found(id), new_request_id(exchange));
  }
  std::string body;
  append_model(body, found->second);
  reply_json(exchange, 200, std::move(body), new_request_id(exchange));
}

void ApiHandler::status(const Exchange& exchange) const {
  deps_.control.post([this, exchange] {
    exchange->post([this, exchange, body = deps_.status_json()]() mutable {
      reply_json(*exchange, 200, std::move(body), new_request_id(*exchange));
    });
  });
}

void ApiHandler::drain_node(const Exchange& exchange) const {
  const HttpRequest& request = exchange->request();
  const auto limit = drain_limit(request.query);
  if (!request.header("origin").empty()) {
    // A web page must not be able to empty a cluster that its visitor can reach.
    ApiError error = bad_request("forbidden", "", "Nodes cannot be drained from a browser.");
    error.status = 403;
    return reply_error(*exchange, error, new_request_id(*exchange));
  }
  if (!limit) {
    return reply_error(
        *exchange,
        bad_request("invalid_value",
                    "limit_ms",
                    fmt::format("limit_ms must be a number from 0 to {}.", kLongestDrainMs)),
        new_request_id(*exchange));
  }
  NodeName name = request.path.substr(kNodesPath.size(),
                                      request.path.size() - kNodesPath.size() - kDrainPath.size());
  deps_.control.post([this, exchange, name = std::move(name), limit = *limit] {
    exchange->post([this, exchange, name, found = deps_.drain_node(name, limit)] {
      const std::string id = new_request_id(*exchange);
      if (!found) {
        ApiError error = bad_request("not_found", "", "No node of this name is registered.");
        error.status = 404;
        return reply_error(*exchange, error, id);
      }
      std::string body = "{\"node\":";
      append_json_string(body, name);
      reply_json(*exchange, 200, body + ",\"state\":\"draining\"}", id);
    });
  });
}

}  // namespace baton::gateway
