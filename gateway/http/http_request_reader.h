// From the bytes of a connection to its requests, one after another: feeds Beast's parser and
// bounds what a request may hold.
//
// Sequence of events: `read` until it says Whole, then `take`, and so on. After Fault nothing more
// can be read of the connection.
//
// Owner: its connection. Thread: the connection's. Failure: `fault`, what is wrong with the
// request.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/http/api_error.h"
#include "gateway/http/http_body.h"
#include "gateway/http/http_exchange.h"

namespace baton::gateway {

class HttpRequestReader {
 public:
  struct Limits {
    std::size_t head_bytes = 0;
    std::size_t body_bytes = 0;
  };
  enum class Step : std::uint8_t {
    More,   // what is left of the bytes must come again, with more behind
    Head,   // whole, and a body is still to come; once a request
    Whole,  // the request
    Fault,
  };

  explicit HttpRequestReader(Limits limits) : limits_(limits) {}

  // Takes what it used off `bytes`.
  Step read(std::string_view& bytes);

  // REQUIRES: the last step was Head. Of the headers it has only `authorization`.
  HttpRequest head() const;
  bool expects_continue() const;

  struct Request {
    HttpRequest message;
    bool keep_alive = false;
    bool is_http11 = false;
  };
  // REQUIRES: the last step was Whole.
  Request take();

  struct Fault {
    ApiError error;
    bool is_too_large = false;
  };
  // REQUIRES: the last step was Fault.
  Fault fault() const;
  // Of the request being read, as far as it has come.
  std::string origin() const;
  // Forgets the request being read.
  void reset() { parser_.reset(); }

 private:
  using Parser = boost::beast::http::request_parser<HttpBody>;

  // Gives the parser some more; the bytes it used, which are taken off.
  std::size_t put(std::string_view& bytes);

  const Limits limits_;
  std::optional<Parser> parser_;  // of the request being read
  std::size_t head_bytes_ = 0;
  bool has_told_head_ = false;
  boost::system::error_code error_;
};

}  // namespace baton::gateway
