#include "gateway/http/http_request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

namespace baton::gateway {
namespace {

namespace http = boost::beast::http;

int hex_value(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// Percent-decoding; a broken escape stays as it is.
std::string decode_path(std::string_view raw) {
  if (raw.find('%') == std::string_view::npos) {
    return std::string(raw);
  }
  std::string out;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '%' && i + 2 < raw.size() && hex_value(raw[i + 1]) >= 0 &&
        hex_value(raw[i + 2]) >= 0) {
      out += static_cast<char>(hex_value(raw[i + 1]) * 16 + hex_value(raw[i + 2]));
      i += 2;
    } else {
      out += raw[i];
    }
  }
  return out;
}

// "http://host/path?query" is legal too in a request line.
std::string_view strip_authority(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (!target.starts_with('/') && scheme != std::string_view::npos) {
    const std::size_t slash = target.find('/', scheme + 3);
    return slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target;
}

// Method, path and query.
HttpRequest request_line(const http::request<HttpBody>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const boost::beast::string_view raw = message.target();
  const std::string_view target = strip_authority({raw.data(), raw.size()});
  const std::size_t question = target.find('?');
  request.path = decode_path(target.substr(0, question));
  if (question != std::string_view::npos) {
    request.query = target.substr(question + 1);
  }
  return request;
}

}  // namespace

HttpRequestReader::Step HttpRequestReader::read(std::string_view& bytes) {
  if (!parser_) {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(limits_.head_bytes));
    parser_->body_limit(limits_.body_bytes);
    head_bytes_ = 0;
    has_told_head_ = false;
  }
  // The head by itself: Beast bounds one that comes in parts, and none that comes whole.
  while (!parser_->is_header_done()) {
    if (bytes.empty()) {
      return Step::More;
    }
    const std::size_t used = put(bytes);
    head_bytes_ += used;
    if (error_ && (error_ != http::error::need_more || used == 0)) {
      return error_ == http::error::need_more ? Step::More : Step::Fault;
    }
  }
  if (head_bytes_ > limits_.head_bytes) {
    error_ = http::error::header_limit;
    return Step::Fault;
  }
  parser_->eager(true);
  while (!parser_->is_done() && !bytes.empty()) {
    const std::size_t used = put(bytes);
    if (error_ && error_ != http::error::need_more) {
      return Step::Fault;
    }
    if (error_ && used == 0) {
      break;
    }
  }
  if (parser_->is_done()) {
    return Step::Whole;
  }
  return std::exchange(has_told_head_, true) ? Step::More : Step::Head;
}

std::size_t HttpRequestReader::put(std::string_view& bytes) {
  const std::size_t used = parser_->put(boost::asio::buffer(bytes), error_);
  bytes.remove_prefix(used);
  return used;
}

HttpRequest HttpRequestReader::head() const {
  const auto& message = parser_->get();
  HttpRequest head = request_line(message);
  head.headers.emplace_back("authorization", std::string(message[http::field::authorization]));
  return head;
}

bool HttpRequestReader::expects_continue() const {
  const auto& message = parser_->get();
  return message.version() >= 11 &&
         boost::beast::iequals(message[http::field::expect], "100-continue");
}

HttpRequestReader::Request HttpRequestReader::take() {
  const bool keep_alive = parser_->keep_alive();
  http::request<HttpBody> message = parser_->release();
  parser_.reset();
  Request request{request_line(message), keep_alive, message.version() >= 11};
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    });
    request.message.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.message.body = std::move(message.body());
  request.message.received = std::chrono::steady_clock::now();
  return request;
}

HttpRequestReader::Fault HttpRequestReader::fault() const {
  const auto too_large =
      [](int status, const char* code, std::string_view part, std::uint64_t limit) {
        ApiError api = bad_request(
            code, "", fmt::format("The request {} is larger than {} bytes.", part, limit));
        api.status = status;
        return Fault{std::move(api), true};
      };
  if (error_ == http::error::header_limit) {
    return too_large(431, "headers_too_large", "head", limits_.head_bytes);
  }
  if (error_ == http::error::body_limit) {
    return too_large(413, "request_too_large", "body", limits_.body_bytes);
  }
  return {bad_request(
              "malformed_http", "", fmt::format("Malformed HTTP request: {}.", error_.message())),
          false};
}

std::string HttpRequestReader::origin() const {
  return parser_ ? std::string(parser_->get()[http::field::origin]) : std::string();
}

}  // namespace baton::gateway
