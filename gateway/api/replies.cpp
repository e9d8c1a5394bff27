#include "gateway/api/replies.h"

#include <algorithm>

#include "common/base/digits.h"

namespace baton::gateway {
namespace {

constexpr std::size_t kLikelyHeaders = 4;

}  // namespace

std::string request_id_for(const HttpRequest& request, std::uint64_t id) {
  const std::string_view given = request.header("x-request-id");
  const bool harmless =
      !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
        return c > ' ' && c < 0x7f && c != '"' && c != '\\';
      });
  if (harmless) {
    return std::string(given);
  }
  std::string made = "req_";
  append_hex(made, id);
  return made;
}

HttpHeaders api_headers(const std::string& content_type, const std::string& request_id) {
  HttpHeaders headers;
  headers.reserve(kLikelyHeaders);
  headers.emplace_back("content-type", content_type);
  headers.emplace_back("x-request-id", request_id);
  return headers;
}

void reply_json(HttpExchange& exchange,
                int status,
                std::string body,
                const std::string& request_id) {
  exchange.respond(status, api_headers("application/json", request_id), std::move(body));
}

void reply_error(HttpExchange& exchange, const ApiError& error, const std::string& request_id) {
  HttpHeaders headers = api_headers("application/json", request_id);
  if (error.retry_after_s > 0) {
    headers.emplace_back("retry-after", std::to_string(error.retry_after_s));
    headers.emplace_back("retry-after-ms",
                         std::to_string(error.retry_after_ms > 0 ? error.retry_after_ms
                                                                 : error.retry_after_s * 1000ULL));
  }
  if (error.should_retry) {
    headers.emplace_back("x-should-retry", *error.should_retry ? "true" : "false");
  }
  exchange.respond(error.status, std::move(headers), error_body(error));
}

void reply_preflight(HttpExchange& exchange, const std::string& allow) {
  const std::string_view asked = exchange.request().header("access-control-request-headers");
  exchange.respond(204,
                   {{"allow", allow},
                    {"access-control-allow-methods", allow},
                    {"access-control-allow-headers", asked.empty() ? "*" : std::string(asked)},
                    {"access-control-max-age", "86400"}},
                   "");
}

}  // namespace baton::gateway
