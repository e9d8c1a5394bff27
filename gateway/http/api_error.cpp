#include "gateway/http/api_error.h"

#include <fmt/format.h>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

void append_nullable(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

constexpr std::size_t kLongestMessage = 1000;  // it may repeat what a client sent
constexpr std::size_t kLongestQuote = 256;

// At most that many bytes; no character is cut in two.
std::string_view shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) {
    return text;
  }
  std::size_t size = most;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) {
    --size;
  }
  return text.substr(0, size);
}

// A request line may hold any byte; a body must be UTF-8.
std::string printable(std::string_view raw) {
  std::string out(shortened(raw, kLongestQuote));
  for (char& c : out) {
    c = c < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// host:port, [host]:port, four numbers with dots, or a path from the root.
bool names_a_place(std::string_view text) {
  int dots = 0;  // in a row of numbers
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char before = i == 0 ? ' ' : text[i - 1];
    const char after = i + 1 == text.size() ? ' ' : text[i + 1];
    if (c == ':' && is_digit(after) && (is_word(before) || before == ']')) {
      return true;
    }
    if (c == '/' && is_word(after) && !is_word(before) && before != '/' && before != '.') {
      return true;
    }
    if (c == '.' && is_digit(before) && is_digit(after)) {
      if (++dots == 3) {
        return true;
      }
    } else if (!is_digit(c)) {
      dots = 0;
    }
  }
  return false;
}

// Null: the node's own.
const char* words_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::Busy:
    case ErrorCode::NoBlocks:
      return "The nodes have no room for the request now. Try again later.";
    case ErrorCode::Preempted:
    case ErrorCode::Draining:
    case ErrorCode::Unavailable:
      return "The nodes that worked on the request have left, and others could not go on with it.";
    case ErrorCode::Timeout:
      return "The nodes took too long for the request.";
    default:
      return nullptr;
  }
}

ApiError server_error(int status, std::string code, std::string message, std::uint32_t retry_s) {
  ApiError error;
  error.status = status;
  error.type = "server_error";
  error.code = std::move(code);
  error.message = std::move(message);
  error.retry_after_s = retry_s;
  return error;
}

}  // namespace

ApiError bad_request(std::string code, std::string param, std::string message) {
  ApiError error;
  error.status = 400;
  error.type = "invalid_request_error";
  error.code = std::move(code);
  error.param = shortened(param, kLongestQuote);  // so may this
  error.message = shortened(message, kLongestMessage);
  return error;
}

ApiError model_not_found(std::string_view model) {
  ApiError error = bad_request("model_not_found",
                               "model",
                               fmt::format("The model '{}' does not exist on this server. "
                                           "GET /v1/models lists those that do.",
                                           shortened(model, kLongestQuote)));
  error.status = 404;
  return error;
}

ApiError no_such_path(std::string_view method, std::string_view path) {
  ApiError error =
      bad_request("not_found",
                  "",
                  fmt::format("Unknown request URL: {} {}", printable(method), printable(path)));
  error.status = 404;
  return error;
}

ApiError method_not_allowed(std::string_view method,
                            std::string_view path,
                            std::string_view allow) {
  ApiError error = bad_request(
      "method_not_allowed",
      "",
      fmt::format(
          "{} is not allowed for {}; allowed: {}", printable(method), printable(path), allow));
  error.status = 405;
  return error;
}

ApiError to_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::InvalidArgument:
      return bad_request("invalid_value", "", error.message);
    case ErrorCode::ContextTooLong:
      return bad_request("context_length_exceeded", "messages", error.message);
    case ErrorCode::NotFound: {
      ApiError api = bad_request("not_found", "", error.message);
      api.status = 404;
      return api;
    }
    case ErrorCode::Busy:
    case ErrorCode::NoBlocks: {
      ApiError api = server_error(429, "rate_limit_exceeded", error.message, 1);
      api.type = "rate_limit_exceeded";
      return api;
    }
    case ErrorCode::Preempted:
    case ErrorCode::Draining:
    case ErrorCode::Unavailable:
      return server_error(503, "service_unavailable", error.message, 1);
    case ErrorCode::Timeout: {
      ApiError api = server_error(504, "timeout", error.message, 0);
      api.should_retry = false;  // the SDK would wait the whole deadline once more
      return api;
    }
    case ErrorCode::PeerDead:
    case ErrorCode::PeerStalled:
    case ErrorCode::StaleIncarnation:
    case ErrorCode::GrantRevoked:
    case ErrorCode::ChecksumMismatch:
    case ErrorCode::ProtocolError:
      return server_error(502,
                          "upstream_unreachable",
                          "A node failed while working on the request. Send it again.",
                          0);
    case ErrorCode::Cancelled:
      return server_error(499, "cancelled", "The request was cancelled.", 0);
    default:
      return server_error(
          500, "internal_error", "The server had an error while working on the request.", 0);
  }
}

ApiError to_client_error(const Error& of_a_node) {
  Error told = of_a_node;
  if (const char* words = words_for(told.code)) {
    told.message = words;
  } else if (names_a_place(told.message)) {
    told.message = "The request is not one that the model's nodes can serve.";
  }
  return to_api_error(told);
}

std::string error_body(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, error.message);
  out += ",\"type\":";
  append_nullable(out, error.type);
  out += ",\"param\":";
  append_nullable(out, error.param);
  out += ",\"code\":";
  append_nullable(out, error.code);
  out += "}}";
  return out;
}

}  // namespace baton::gateway
