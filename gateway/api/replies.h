// Whole HTTP replies with the headers that every reply of the API has.
//
// Thread: the exchange's I/O thread. Failure: none.
#pragma once

#include <string>

#include "gateway/http/api_error.h"
#include "gateway/http/http_exchange.h"

namespace baton::gateway {

// The client's x-request-id when it is short and harmless, else a new one from `id`.
std::string request_id_for(const HttpRequest& request, std::uint64_t id);

HttpHeaders api_headers(const std::string& content_type, const std::string& request_id);

void reply_json(HttpExchange& exchange,
                int status,
                std::string body,
                const std::string& request_id);
void reply_error(HttpExchange& exchange, const ApiError& error, const std::string& request_id);
// The answer to a browser's preflight.
void reply_preflight(HttpExchange& exchange, const std::string& allow);

}  // namespace baton::gateway
