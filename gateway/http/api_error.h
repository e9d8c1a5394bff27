// An error as a client of the OpenAI API sees it: HTTP status and the four keys of the error
// object. Addresses and paths of the cluster never reach it.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace baton::gateway {

struct ApiError {
  int status = 500;
  std::string type = "server_error";
  std::string code;   // empty: null in the body
  std::string param;  // empty: null in the body
  std::string message;
  std::uint32_t retry_after_s = 0;   // 0: no Retry-After header
  std::uint32_t retry_after_ms = 0;  // the same in milliseconds, when it is known so well
  std::optional<bool> should_retry;  // x-should-retry header, for SDKs that would guess wrong
};

template <class T>
using ApiResult = std::expected<T, ApiError>;

// 400 invalid_request_error.
ApiError bad_request(std::string code, std::string param, std::string message);
ApiError model_not_found(std::string_view model);
ApiError no_such_path(std::string_view method, std::string_view path);
ApiError method_not_allowed(std::string_view method, std::string_view path, std::string_view allow);

// What a client is told about an error of our own, in its own words.
ApiError to_api_error(const Error& error);
// What it is told about an error that a node has sent, or that a connection to one ended with. Such
// sentences are for the log: they may hold addresses and paths. Kept is what speaks of the request
// itself and names no place.
ApiError to_client_error(const Error& of_a_node);

// {"error":{"message":…,"type":…,"param":…,"code":…}}
std::string error_body(const ApiError& error);

}  // namespace baton::gateway
