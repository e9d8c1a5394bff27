#include "gateway/api/api_handler.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "common/json/json_escape.h"
#include "gateway/api/replies.h"
#include "gateway/cluster/rollout.h"
#include "gateway/responses_api/kept_responses.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kResponsesPath = "/v1/responses/";
constexpr std::string_view kRequestsPath = "/baton/requests";
constexpr std::string_view kNodesPath = "/v1/baton/nodes/";
constexpr std::string_view kDrainPath = "/drain";
constexpr std::uint64_t kDrainLimitMs = 60'000;
constexpr std::uint64_t kLongestDrainMs = 86'400'000;

// /v1/baton/nodes/{name}/drain
bool is_drain_path(std::string_view path) {
  return path.starts_with(kNodesPath) && path.ends_with(kDrainPath) &&
         path.size() > kNodesPath.size() + kDrainPath.size();
}

// What follows "{collection}/"; empty: the path is another one.
std::string_view entry_of(std::string_view path, std::string_view collection) {
  const bool is_below = path.starts_with(collection) && path.size() > collection.size() &&
                        path[collection.size()] == '/';
  return is_below ? path.substr(collection.size() + 1) : std::string_view();
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
  for (const std::string_view known : {"/v1/chat/completions",
                                       "/v1/completions",
                                       "/v1/responses",
                                       "/tokenize",
                                       "/v1/tokenize",
                                       "/detokenize",
                                       "/v1/detokenize"}) {
    if (path == known) {
      return "POST, OPTIONS";
    }
  }
  if (path.starts_with(kResponsesPath) && path.size() > kResponsesPath.size() &&
      path.find('/', kResponsesPath.size()) == std::string::npos) {
    return "GET, HEAD, DELETE, OPTIONS";
  }
  if (is_drain_path(path)) {
    return "POST, OPTIONS";
  }
  for (const std::string_view known : std::initializer_list<std::string_view>{
           "/health", "/livez", "/readyz", "/baton/status", kRequestsPath, kModelsPath}) {
    if (path == known) {
      return "GET, HEAD, OPTIONS";
    }
  }
  return !entry_of(path, kModelsPath).empty() || !entry_of(path, kRequestsPath).empty()
             ? "GET, HEAD, OPTIONS"
             : "";
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

ApiHandler::ApiHandler(ApiHandlerDeps deps)
    : deps_(std::move(deps)),
      generate_({deps_.control,
                 deps_.tracker,
                 deps_.models,
                 deps_.delivery,
                 deps_.pool,
                 deps_.random,
                 deps_.configured_model,
                 deps_.keepalive,
                 deps_.cost,
                 deps_.store,
                 grammars_,
                 deps_.traces}),
      tokenize_({deps_.models, deps_.pool, deps_.random, deps_.configured_model}) {}

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

std::optional<ApiError> ApiHandler::check_head(const HttpRequest& head) const {
  if (head.method == "OPTIONS") {
    return std::nullopt;
  }
  const auto caller = authenticate(deps_.keys, head, access_of(head.path));
  return caller ? std::nullopt : std::optional(caller.error());
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
  const bool deletes =
      request.method == "DELETE" && allowed.find("DELETE") != std::string_view::npos;
  if (!deletes && (allowed.starts_with("GET") ? !get_like : request.method != "POST")) {
    HttpHeaders headers = api_headers("application/json", new_request_id(*exchange));
    headers.emplace_back("allow", std::string(allowed));
    const ApiError error = method_not_allowed(request.method, request.path, allowed);
    return exchange->respond(error.status, std::move(headers), error_body(error));
  }
  const auto caller = authenticate(deps_.keys, request, access_of(request.path));
  if (!caller) {
    return reply_error(*exchange, caller.error(), new_request_id(*exchange));
  }
  if (request.path.starts_with(kResponsesPath)) {
    return reply_kept(*exchange,
                      deps_.store,
                      caller->name(),
                      request.path.substr(kResponsesPath.size()),
                      new_request_id(*exchange));
  }
  if (get_like) {
    return get(exchange, *caller);
  }
  post(exchange, *caller);
}

void ApiHandler::post(const Exchange& exchange, const Caller& caller) {
  const std::string& path = exchange->request().path;
  if (is_drain_path(path)) {
    return drain_node(exchange);
  }
  if (draining_.load()) {
    return reply_error(
        *exchange, unavailable("The server is shutting down."), new_request_id(*exchange));
  }
  if (path.ends_with("/detokenize")) {
    return tokenize_.detokenize(exchange, caller);
  }
  if (path.ends_with("/tokenize")) {
    return tokenize_.tokenize(exchange, caller);
  }
  generate_.handle(exchange,
                   path == "/v1/completions" ? Endpoint::Completions
                   : path == "/v1/responses" ? Endpoint::Responses
                                             : Endpoint::Chat,
                   caller);
}

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
  if (path == "/baton/status") {
    return status(exchange);
  }
  if (path == kRequestsPath || !entry_of(path, kRequestsPath).empty()) {
    return show_requests(exchange, std::string(entry_of(path, kRequestsPath)));
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
  const ServedModels models = deps_.models.rollout().visible(*deps_.models.get());
  std::string body = "{\"object\":\"list\",\"data\":[";
  bool first = true;
  for (const auto& [id, model] : models) {
    if (caller.may_use_model(id)) {
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
  const ServedModels models = deps_.models.rollout().visible(*deps_.models.get());
  const auto found = models.find(id);
  if (found == models.end() || !caller.may_use_model(id)) {
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

void ApiHandler::show_requests(const Exchange& exchange, const std::string& id) const {
  deps_.control.post([this, exchange, id] {
    exchange->post([this, exchange, body = deps_.requests_json(id)]() mutable {
      const std::string request_id = new_request_id(*exchange);
      if (!body.empty()) {
        return reply_json(*exchange, 200, std::move(body), request_id);
      }
      ApiError error = bad_request(
          "not_found",
          "",
          "This gateway has no such request in work or among the last that ended. Ask the gateway "
          "that took it, by the 16 digits of the answer's id or the 32 of its trace.");
      error.status = 404;
      reply_error(*exchange, error, request_id);
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
